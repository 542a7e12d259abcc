"""What a program runs, counted in small programs written by hand."""

import pytest

from tools import hlo

STATED = """HloModule gpu

%body (carry: (s32[], f32[4])) -> (s32[], f32[4]) {
  %carry = (s32[], f32[4]{0}) parameter(0)
  %i = s32[] get-tuple-element(%carry), index=0
  %x = f32[4]{0} get-tuple-element(%carry), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %y = f32[4]{0} fusion(%x), kind=kLoop, calls=%inside
  ROOT %out = (s32[], f32[4]{0}) tuple(%next, %y)
}

%condition (carry: (s32[], f32[4])) -> pred[] {
  %carry = (s32[], f32[4]{0}) parameter(0)
  %i = s32[] get-tuple-element(%carry), index=0
  %end = s32[] constant(5)
  ROOT %less = pred[] compare(%i, %end), direction=LT
}

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  %zero = s32[] constant(0)
  %copied = f32[4]{0} copy-start(%x)
  %there = f32[4]{0} copy-done(%copied)
  %start = (s32[], f32[4]{0}) tuple(%zero, %there)
  %loop = (s32[], f32[4]{0}) while(%start), condition=%condition, body=%body, KNOWN
  ROOT %result = f32[4]{0} get-tuple-element(%loop), index=1
}
"""
KNOWN = 'backend_config={"known_trip_count":{"n":"5"}}'
CALLS = """
%cheap (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  ROOT %y = f32[4]{0} negate(%x), backend_config={"estimated_cycles":"10"}
}

%dear (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  %kernel = f32[4]{0} custom-call(%x), custom_call_target="tpu_custom_call"
  ROOT %y = f32[4]{0} negate(%kernel), backend_config={"estimated_cycles":"70"}
}

ENTRY %main (x: f32[4], p: pred[]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  %p = pred[] parameter(1)
  %called = f32[4]{0} call(%x), to_apply=%cheap
  ROOT %either = f32[4]{0} conditional(%p, %x, %called), BRANCHES
}
"""
WAYS = "true_computation=%cheap, false_computation=%dear", "branch_computations={%cheap, %dear}"


def test_a_loop_of_stated_length_runs_its_body_that_often():
    """The copy, and five times the addition and the fusion; what only names things launches nothing."""
    assert hlo.Program(STATED.replace("KNOWN", KNOWN)).total(hlo.launches) == 1 + 5 * 2


def test_a_loop_of_unstated_length_is_counted_by_its_counter_and_asks_its_condition():
    assert hlo.Program(STATED.replace(", KNOWN", "")).total(hlo.launches) == 1 + 5 * 2 + 6


@pytest.mark.parametrize(("was", "now", "trips"), [
    ("constant(5)", "constant(11)", 11),
    ("%one = s32[] constant(1)", "%one = s32[] constant(2)", 3),
    ("%zero = s32[] constant(0)", "%zero = s32[] constant(4)", 1),
    ("%zero = s32[] constant(0)", "%zero = s32[] constant(9)", 0),
])  # fmt: skip
def test_start_step_and_end_give_the_trips(was, now, trips):
    program = hlo.Program(STATED.replace(", KNOWN", "").replace(was, now))
    assert program.total(lambda x: x.kind == "fusion") == trips


@pytest.mark.parametrize(("was", "now"), [
    ("direction=LT", "direction=NE"),
    ("%end = s32[] constant(5)", "%end = s32[] get-tuple-element(%carry), index=0"),
    ("%next = s32[] add(%i, %one)", "%next = s32[] multiply(%i, %one)"),
    ("%next = s32[] add(%i, %one)", "%next = s32[] add(%x, %one)"),
    ("%zero = s32[] constant(0)", "%zero = s32[] parameter(1)"),
])  # fmt: skip
def test_loops_that_numbers_decide_need_visits(was, now):
    program = hlo.Program(STATED.replace(", KNOWN", "").replace(was, now))
    assert program.total(lambda x: x.kind == "fusion", (7,)) == 7
    with pytest.raises(ValueError, match=r"1 loops of the compiled program do not say .*\(loop\), and the row names 0"):
        program.total(hlo.launches)
    with pytest.raises(ValueError, match=r"\(loop\), and the row names 2; name in `loops` of the row"):
        program.total(hlo.launches, (7, 7))


def test_visits_for_a_program_without_such_loops_are_refused():
    with pytest.raises(ValueError, match=r"0 loops .*\(none\), and the row names 1"):
        hlo.Program(STATED.replace("KNOWN", KNOWN)).total(hlo.launches, (7,))


@pytest.mark.parametrize("branches", WAYS)
def test_of_branches_the_dearest_counts_and_calls_are_followed(branches):
    program = hlo.Program(CALLS.replace("BRANCHES", branches))
    assert [program.total(price) for price in (hlo.cycles, hlo.kernels)] == [10 + 70, 1]


@pytest.mark.parametrize(("text", "error"), [
    ("HloModule empty", "no ENTRY computation; give what Compiled.as_text"),
    (CALLS.replace(", BRANCHES", ""), "the conditional either names no branches: this is no HLO that XLA prints"),
    (CALLS.replace(", to_apply=%cheap", ""), "called is a call without to_apply=: this is no HLO that XLA prints"),
    (STATED.replace("%x = f32[4]{0} parameter(0)", "%x = nothing"), "no operation is named on the line of x: %x = nothing"),
    (STATED.replace("index=0", ""), "i takes an element and says not which"),
])  # fmt: skip
def test_what_is_no_program_is_refused(text, error):
    with pytest.raises(ValueError, match=error):
        hlo.Program(text.replace(", KNOWN", "")).total(hlo.launches)

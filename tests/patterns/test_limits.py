"""A pattern has a stated size, however it is built, and building one takes few steps."""

import functools
import operator
import pickle

import pytest
from flax import nnx

import attnjax as aj
from attnjax import models
from attnjax.cache.columns import few
from attnjax.patterns import algebra

PRIMES = [n for n in range(2, 1000) if all(n % i for i in range(2, n))]
RULES = "the pattern would hold 129 rules; it may hold at most 128: write it as one function, aj.Where(fn), or pass an array as mask="


def strides(numbers):
    return functools.reduce(operator.or_, map(aj.Strided, numbers))


def fault(make):
    with pytest.raises(ValueError) as caught:
        make()
    return str(caught.value)


MOST = strides(PRIMES[:128])


def test_128_rules_are_a_pattern_and_129_are_none():
    another, heads = aj.Strided(PRIMES[128]), aj.PerHead((aj.Causal(), MOST))
    assert pickle.loads(pickle.dumps(MOST)) == MOST == ~~MOST
    for make in (
        lambda: MOST | another, lambda: another | MOST, lambda: MOST & another, lambda: ~MOST & ~another,
        lambda: heads | another, lambda: another & heads,
    ):  # fmt: skip
        assert fault(make) == RULES
    assert MOST | aj.Strided(PRIMES[3] * 2) == MOST and MOST & aj.Full() == MOST  # what merges adds no rule
    assert "would hold 256 rules" in fault(lambda: (MOST | aj.Strided(2)) & ~MOST)


@pytest.mark.slow
def test_text_that_holds_too_many_rules_shows_the_place():
    terms = [f"strided({n})" for n in PRIMES]
    text = " | ".join(terms)
    place = text.index(terms[128])
    said = fault(lambda: aj.parse(text))
    assert said == f"cannot read pattern: {RULES}\n  {text[place - 60 : place + 60]}\n  {' ' * 60}^"
    said = fault(lambda: models.Config(**SMALL, legend={"G": f"perhead(causal(), {text})"}))
    assert said.startswith(f"legend['G']: cannot read pattern: {RULES}")


CUTS = " | ".join(f"prefix({3 * n}) & ~band({900 - n}, {5 * n}) & ~sink({n})" for n in range(1, 27))
SMALL = dict(vocab_size=8, d_model=8, num_layers=1, num_heads=1, layout="G")


@pytest.mark.slow
def test_a_hundred_groups_deep_is_read_back_and_more_is_refused():
    deepest = aj.Strided(7) | aj.Chunked(5)
    for n in range(99):
        deepest = deepest | aj.Chunked(PRIMES[n + 40]) if n % 2 else deepest & ~aj.Strided(PRIMES[n + 9])
    assert aj.parse(str(deepest)) == deepest
    assert deepest.count(20) == deepest.mask(20).sum()
    assert "would nest & and | 101 deep; it may nest them 100 deep: write it as" in fault(lambda: deepest | aj.Strided(3))


@pytest.mark.slow
def test_loading_refuses_a_pattern_that_is_too_large(tmp_path):
    models.save(models.Decoder(models.Config(**SMALL, legend={"G": "causal()"}), rngs=nnx.Rngs(0)), tmp_path / "model")
    said = fault(lambda: models.load(tmp_path / "model", CUTS))
    assert said.startswith("cannot read pattern: the pattern's numbers would cut queries into 28 ranges, keys into 45 and d")


def test_numbers_that_cut_too_finely_are_refused():
    terms = CUTS.split(" | ")
    fewer = aj.parse(" | ".join(terms[:-1]))
    said = fault(lambda: fewer | aj.parse(terms[-1]))
    assert said == (
        "the pattern's numbers would cut queries into 28 ranges, keys into 45 and distances into 54, so 68,040 regions; "
        "it may have at most 65,536: write it as one function, aj.Where(fn), or pass an array as mask="
    )


def test_joining_tries_each_pair_of_rules_once(monkeypatch):
    """A chain used to try all pairs anew at each step, and once more after each that merged."""
    tried = []
    merge = algebra._merge_two
    monkeypatch.setattr(algebra, "_merge_two", lambda *terms: tried.append(1) or merge(*terms))
    strides(PRIMES[:40])
    assert len(tried) == 40 * 39 // 2
    tried.clear()
    assert aj.parse(" | ".join(["strided(2)"] + [f"strided({2 * n})" for n in range(2, 200)])) == aj.Strided(2)
    assert len(tried) == 198
    tried.clear()
    assert MOST | MOST == MOST == MOST & MOST and not tried


def test_heads_too_many_for_one_pattern_still_have_a_cache():
    heads = aj.PerHead(tuple(aj.Strided(n) & aj.Window(3 * n) | aj.Sink(2) & ~aj.Chunked(n + 1) for n in PRIMES[5:45]))
    assert "would hold" in fault(heads.union)
    found = [head.slots(1000) for head in heads.patterns]
    slots = heads.slots(1000)
    assert (slots.sinks, slots.ring) == (max(s.sinks for s in found), max(s.ring for s in found))
    assert few(heads, 1000) is None and heads.hull() == aj.Causal()

"""What `backends/base.py` promises, held by every backend in the registry, and that nothing else names one."""

import ast
import inspect
import pathlib
import re
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attnjax as aj
from attnjax.attend import run
from attnjax.backends import BACKENDS, LENDS, choose, derivatives_of, holding_weights
from attnjax.backends.base import Backend, Differentiable, HoldsWeights, Target, Work, default_target
from attnjax.call import without_hidden_keys
from attnjax.door import bind
from tests.support import pairs
from tests.support.budget import assert_within
from tests.support.paired import limits, sample, wide
from tests.support.table import Row, data, on_device

ROOT = pathlib.Path(__file__).parents[2]
GAP = aj.Causal() & ~aj.Window(3)  # its first rows are empty
ROWS = (
    Row(GAP),
    Row(GAP, dtype="bfloat16", bias="NTS", soft_cap=3.0),
    Row(GAP, dtype="float16", alibi=True, K=1),
    Row(GAP, dtype="float64", bias="S", alibi=True),
    Row(aj.Window(4), T=9, S=30, q_offset=26, mask="BTS"),  # the last rows see nothing
    Row(aj.Causal(), rate=0.4, alibi=True),
    Row(~aj.Full()),
)
every_backend = pytest.mark.parametrize("name", BACKENDS)
every_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


# -- the members ---------------------------------------------------------------------------------------------------


def members(protocol):
    """name -> parameters, of the functions that a protocol asks for."""
    found = {name: fn for name, fn in vars(protocol).items() if inspect.isfunction(fn) and name[0] != "_"}
    return {name: list(inspect.signature(fn).parameters)[1:] for name, fn in found.items()}


@every_backend
def test_a_backend_has_the_members_of_the_contract(name):
    own = BACKENDS[name]
    assert isinstance(own.plain, bool) and inspect.getdoc(own)
    for protocol in (Backend, Differentiable, HoldsWeights):
        wanted = members(protocol)
        assert wanted, protocol
        if protocol is Backend or any(hasattr(own, member) for member in wanted):
            for member, parameters in wanted.items():
                assert list(inspect.signature(getattr(own, member)).parameters) == parameters, f"{name}.{member}"
    assert not (own.plain and isinstance(own, Differentiable)), "plain JAX has JAX's own derivatives"


def test_the_registry_lends_derivatives_and_weights_and_something_runs_everywhere():
    assert isinstance(LENDS, Differentiable)
    name, own = holding_weights()
    assert BACKENDS[name] is own
    nothing = jnp.zeros((1, 0, 1, 4))
    call, _ = bind(nothing, nothing, nothing, aj.Full())
    assert any(own.why_not(call, Target("a platform of the future")) is None for own in BACKENDS.values())


# -- the facts -----------------------------------------------------------------------------------------------------


class Answer(types.SimpleNamespace):
    """What a backend makes of a row: its own forward, and the derivatives of whoever lends them."""


def answer(name, row):
    inputs, options, d_o, d_lse = data(row)
    call, _ = bind(pattern=row.pattern, scale=row.scale, soft_cap=row.soft_cap, **on_device(inputs), **options)
    call, target, own = without_hidden_keys(call), default_target(), derivatives_of(name)
    o, lse = jax.jit(lambda call: BACKENDS[name].forward(call, target))(call)
    looks = ~jnp.isneginf(lse)
    d_o, d_lse = jnp.where(looks[..., None], d_o, 0).astype(o.dtype), jnp.where(looks, d_lse, 0).astype(lse.dtype)
    along = jax.tree.map(lambda x: jnp.where(jnp.isinf(x), 1, x).astype(x.dtype), call.diff)
    pulled = jax.jit(lambda call: own.backward(call, target, o, lse, d_o, d_lse))(call)
    pushed = [jax.jit(lambda call, t: own.tangent(call, target, o, lse, t))(call, t)
              for t in (along, jax.tree.map(lambda x: 2 * x, along))]  # fmt: skip
    return Answer(row=row, call=call, target=target, own=own, o=o, lse=lse, pulled=pulled, pushed=pushed)


def right_values(a):
    for name, (exact, limit) in limits(sample(a.row), ("o", "lse")).items():
        assert_within(getattr(a, name), exact, limit, name)


def right_dtypes(a):
    """The output in q's, the log-sum-exp at least float32."""
    assert (a.o.dtype, a.lse.dtype) == (a.row.dtype, wide(a.row))
    assert a.o.shape == (a.row.B, a.row.T, a.row.N, a.row.h) and a.lse.shape == a.o.shape[:3]


def empty_rows_give_0_and_minus_infinity(a):
    options, bias = data(a.row).options, data(a.row).inputs.get("bias", np.zeros((1, 1, 1, 1)))
    seen = a.row.seen & options.get("mask", True) & ~np.isneginf(bias.astype(np.float32))
    shape = (a.row.B, a.row.N, a.row.T, a.row.keys)
    empty = ~np.broadcast_to(seen, shape).any(-1).swapaxes(1, 2)
    assert empty.any() or a.row.rate
    assert np.array_equal(empty, np.isneginf(a.lse)) and np.isfinite(np.asarray(a.lse)[~empty]).all()
    assert not np.asarray(a.o, np.float32)[empty].any()


def cotangents_lie_and_are_kept_as_what_they_are_of(a):
    for (path, x), like in zip(jax.tree_util.tree_leaves_with_path(a.pulled), jax.tree.leaves(a.call.diff), strict=True):
        assert (x.shape, x.dtype) == (like.shape, like.dtype), jax.tree_util.keystr(path)
        assert np.isfinite(np.asarray(x, np.float32)).all(), jax.tree_util.keystr(path)
    assert jax.tree.structure(a.pulled) == jax.tree.structure(a.call.diff)


def tangents_are_linear(a):
    once, twice = a.pushed
    for x, y, like in zip(once, twice, (a.o, a.lse), strict=True):
        assert (x.shape, x.dtype) == (like.shape, like.dtype)
        size = float(jnp.finfo(x.dtype).eps) * 64 * max(1.0, np.abs(np.asarray(y, np.float32)).max(initial=0))
        np.testing.assert_allclose(2 * np.asarray(x, np.float32), np.asarray(y, np.float32), atol=size)


def what_is_empty_gets_and_gives_no_derivative(a):
    empty = np.isneginf(a.lse)
    assert not np.asarray(a.pulled.q, np.float32)[empty].any()
    assert not any(np.asarray(x, np.float32)[empty].any() for x in a.pushed[0])


def work_is_counted(a):
    work = BACKENDS[a.name].work(a.call, a.target)
    assert isinstance(work, Work) and work.scores >= (a.call.scores_needed or 0) and work.bytes > 0


FACTS = (
    right_values, right_dtypes, empty_rows_give_0_and_minus_infinity, cotangents_lie_and_are_kept_as_what_they_are_of,
    tangents_are_linear, what_is_empty_gets_and_gives_no_derivative, work_is_counted,
)  # fmt: skip


@pytest.mark.cross
@every_backend
@every_row
def test_every_fact_of_the_contract(name, row):
    with jax.enable_x64(row.dtype == "float64"):
        found = answer(name, row)
        found.name = name
        for fact in FACTS:
            fact(found)


@every_backend
def test_gradients_through_attend_have_the_dtypes_of_their_arrays(name):
    row = ROWS[1]
    inputs = on_device(data(row).inputs | {"sink_logits": np.ones(row.N, np.float32)})
    grads = jax.grad(lambda inputs: jnp.sum(aj.attend(pattern=row.pattern, backend=name, **inputs).astype(jnp.float32)))(inputs)
    assert {n: x.dtype for n, x in grads.items()} == {n: x.dtype for n, x in inputs.items()}


# -- one more, by its line in the registry alone ---------------------------------------------------------------------


class Minimal:
    """The least that the contract asks for: no derivatives, no weights."""

    plain = False
    gives_lse = True

    def __init__(self):
        self.ran = 0

    def why_not(self, call, target):
        if target.platform == "tpu":
            return "it was never tried there"
        return "it knows no dropout" if call.options.dropout_rate else None

    def prefers(self, call, target):
        return False, "never by itself"

    def work(self, call, target):
        return Work(scores=call.dims.T * call.dims.S, bytes=7)

    def forward(self, call, target):
        self.ran += 1
        assert call.diff.sink_logits is None, "sinks join afterwards"
        o, lse = holding_weights()[1].forward(call, target)
        return o, lse if self.gives_lse else None


@pytest.fixture
def minimal(monkeypatch):
    own = Minimal()
    monkeypatch.setitem(BACKENDS, "minimal", own)
    yield own
    run.clear_cache()


X = jnp.asarray(np.random.default_rng(0).standard_normal((2, 9, 2, 4)), jnp.float32)


def test_a_new_backend_borrows_derivatives_and_takes_part_everywhere(minimal):
    call = dict(pattern=aj.Window(4), bias=X[0, :, :, 0].T[:, None], sink_logits=jnp.ones(2))
    loss = lambda name: jax.value_and_grad(lambda x: jnp.sum(jnp.sin(aj.attend(x, x, x, backend=name, **call))))(X)
    for found, right in zip(loss("minimal"), loss("dense"), strict=True):
        np.testing.assert_allclose(found, right, atol=1e-5)
    assert minimal.ran
    found = aj.explain(X, X, X, backend="minimal", **call)
    assert (found.backend, found.bytes, found.tiles, found.walks) == ("minimal", 7, None, ())
    assert found.reasons["minimal"] == "chosen: named by the caller"
    why = aj.explain(X, X, X, **call).reasons["minimal"]
    assert why == "can run; never by itself, where auto takes dense"


def test_a_refusal_is_an_error_with_its_reason_and_never_another_backend(minimal):
    drop = dict(dropout_rate=0.5, dropout_key=jax.random.key(0))
    with pytest.raises(ValueError, match="backend='minimal' cannot run this call: it knows no dropout; usable here: 'auto', 'tiled', 'dense'"):
        aj.attend(X, X, X, aj.Causal(), backend="minimal", **drop)
    call, _ = bind(X, X, X, aj.Causal())
    with pytest.raises(ValueError, match="cannot run this call: it was never tried there; usable here"):
        choose(call, "minimal", Target("tpu"))
    program = jax.jit(lambda x: aj.attend(x, x, x, aj.Causal(), backend="minimal")).trace(X)
    with pytest.raises(ValueError, match="backend='minimal' cannot run this call: it was never tried there"):
        program.lower(lowering_platforms=("tpu",))
    assert choose(call, "auto", Target("tpu"))[1]["minimal"] == "cannot run: it was never tried there"
    assert not minimal.ran


def test_second_order_of_a_new_backend_is_that_of_plain_jax(minimal):
    curl = lambda name: jax.grad(lambda x: jnp.sum(jax.grad(lambda x: jnp.sum(aj.attend(x, x, x, aj.Causal(), backend=name) ** 2))(x) ** 2))(X)
    np.testing.assert_allclose(curl("minimal"), curl("dense"), rtol=1e-3, atol=1e-4)


def test_a_backend_without_log_sum_exp_is_refused_where_one_is_needed(minimal):
    minimal.gives_lse = False
    call = lambda x, **more: aj.attend(x, x, x, aj.Causal(), backend="minimal", **more)
    np.testing.assert_allclose(call(X), aj.attend(X, X, X, aj.Causal()), atol=1e-6)
    for more in ({"return_lse": True}, {"sink_logits": jnp.zeros(2)}):
        with pytest.raises(ValueError, match="'minimal' cannot run this call: it gives no log-sum-exp, which return_lse=True and sink"):
            call(X, **more)
    with pytest.raises(ValueError, match="backend='minimal' has no derivative: it brings none, and gives no log-sum-exp"):
        jax.grad(lambda x: jnp.sum(call(x)))(X)
    minimal.prefers = lambda call, target: (True, "always")
    assert choose(bind(X, X, X, aj.Causal())[0], "auto", Target("cpu"))[0] == "dense", "what auto takes has derivatives"


# -- who may name a backend ------------------------------------------------------------------------------------------

REGISTRY = ROOT / "attnjax/backends/__init__.py"
FILES = sorted((ROOT / "attnjax").rglob("*.py"))


def named(text, names):
    """(line, name) of every string, import and identifier of the code that names one; docstrings may."""
    tree = ast.parse(text)
    docs = {id(node.body[0].value) for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and node.body and isinstance(node.body[0], ast.Expr)}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            words = re.findall(r"\w+", node.value)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            words = f"{getattr(node, 'module', '') or ''}.{'.'.join(alias.name for alias in node.names)}".split(".")
        else:
            words = [getattr(node, "attr", None) or getattr(node, "id", None)]
        yield from ((node.lineno, word) for word in words if word in names)


@pytest.mark.parametrize("path", [p for p in FILES if p != REGISTRY], ids=lambda p: str(p.relative_to(ROOT)))
def test_no_other_file_names_a_backend(path):
    own = path.relative_to(ROOT / "attnjax").with_suffix("").parts
    others = set(BACKENDS) - ({own[1]} if own[0] == "backends" else set())
    assert not list(named(path.read_text(), others)), "ask backends/__init__.py"


def test_names_are_found_in_every_form():
    forms = "from attnjax.backends.tiled import x\nimport attnjax.backends.dense\nfrom attnjax.backends import tiled\nx = 'dense'\ny = f'the dense one {x}'\nbackends.tiled\n"
    found = list(named(f'"""tiled"""\n{forms}def f():\n    """dense"""\n', {"dense", "tiled"}))
    assert found == [(2, "tiled"), (3, "dense"), (4, "tiled"), (5, "dense"), (7, "tiled"), (6, "dense")]
    assert set(pairs.FACTORS["backend"]) == set(BACKENDS)


def test_the_default_target_is_asked_for_in_one_place():
    """A program is made for a target that is passed on; only the contract's file asks JAX for one."""
    said = [str(path.relative_to(ROOT)) for path in FILES for _ in re.findall("default_backend", path.read_text())]
    assert said == ["attnjax/backends/base.py"]

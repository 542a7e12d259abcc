"""Programs for other machines: several platforms in one, sizes that stand for any number, what is chosen for which."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.experimental import pallas as pl
from jax.sharding import AbstractMesh

import attnjax as aj
from attnjax.attend import run
from attnjax.backends import BACKENDS
from attnjax.backends.base import PLATFORMS, Target, Work, default_target

SDS = jax.ShapeDtypeStruct
COMB = aj.Window(8) | aj.Strided(16)


def draw(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


def loaded(exported):
    """Written and read again, with its derivative."""
    return export.deserialize(exported.serialize(vjp_order=1))


def agrees(f, found, *arrays):
    """Values and gradients of both."""
    both = lambda f: (f(*arrays), *jax.grad(lambda *x: jnp.sum(jnp.sin(f(*x))), (0, 1, 2))(*arrays))
    for a, b in zip(both(found), both(f), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.cross
@pytest.mark.parametrize("backend", ["dense", "tiled", "auto"])
@pytest.mark.parametrize("pattern", [COMB, aj.Causal()], ids=str)
def test_a_symbolic_batch_in_every_backend(backend, pattern):
    (b,) = export.symbolic_shape("b")
    T = 160
    ids = jnp.arange(T) // 60

    def f(q, k, v):
        segments = None if pattern is COMB else aj.Segments(jnp.broadcast_to(ids, q.shape[:2]))
        return aj.attend(q, k, v, pattern, backend=backend, segments=segments)

    shapes = (SDS((b, T, n, 8), jnp.float32) for n in (4, 2, 2))
    agrees(f, loaded(export.export(jax.jit(f))(*shapes)).call, *(draw(n, 3, T, n, 8) for n in (4, 2, 2)))


@pytest.mark.parametrize("backend", ["dense", "auto"])
def test_a_symbolic_length_in_the_reference(backend):
    (t,) = export.symbolic_shape("t")
    f = lambda q, k, v: aj.attend(q, k, v, COMB, mask=jnp.ones((1, 1, q.shape[1], q.shape[1]), bool), backend=backend)
    shapes = (SDS((2, t, n, 8), jnp.float32) for n in (4, 2, 2))
    agrees(f, loaded(export.export(jax.jit(f))(*shapes)).call, *(draw(n, 2, 40, n, 8) for n in (4, 2, 2)))


def test_a_symbolic_length_is_refused_where_tiles_are_planned():
    (t,) = export.symbolic_shape("t")
    x = SDS((2, t, 4, 8), jnp.float32)
    f = lambda x: aj.attend(x, x, x, COMB, backend="tiled")
    said = "backend='tiled' cannot run this call: T=t and S=t stand for any number, .* usable here: 'auto', 'dense'"
    with pytest.raises(ValueError, match=said):
        export.export(jax.jit(f))(x)
    t, s = export.symbolic_shape("t, s")
    q, k = SDS((2, t, 4, 8), jnp.float32), SDS((2, s, 4, 8), jnp.float32)
    with pytest.raises(ValueError, match="T=t queries and S=s keys: this pattern depends on positions"):
        export.export(jax.jit(lambda q, k: aj.attend(q, k, k, COMB)))(q, k)


def test_each_platform_chooses_for_itself():
    """512 x 512 scores are few for a GPU and many for a CPU; the program of each holds what suits it."""
    x = SDS((1, 512, 2, 8), jnp.float32)
    chosen = {platform: aj.explain(x, x, x, aj.Causal(), platform=platform).backend for platform in PLATFORMS}
    assert chosen == {"cpu": "tiled", "cuda": "dense", "rocm": "dense", "tpu": "dense"}
    traced = jax.jit(lambda x: aj.attend(x, x, x, aj.Causal())).trace(x)
    held = {p: "x512x512xf32" in traced.lower(lowering_platforms=(p,)).as_text() for p in ("cpu", "cuda", "tpu")}
    assert held == {"cpu": False, "cuda": True, "tpu": True}
    f = lambda q, k, v: aj.attend(q, k, v, aj.Causal())
    exported = export.export(jax.jit(f), platforms=("cpu", "cuda", "tpu"))(x, x, x)
    agrees(f, loaded(exported).call, *(draw(n, 1, 512, 2, 8) for n in range(3)))


def test_explain_knows_its_platforms():
    x = SDS((1, 4096, 2, 64), jnp.float32)
    with pytest.raises(ValueError, match=r"platform='gpu' is unknown; there are 'cpu', 'cuda', 'rocm', 'tpu'; name 'cuda' or 'rocm'"):
        aj.explain(x, x, x, aj.Causal(), platform="gpu")
    assert aj.explain(x, x, x, aj.Causal(), platform=default_target().platform) == aj.explain(x, x, x, aj.Causal())
    rows = lambda platform: aj.explain(x, x, x, aj.Causal(), platform=platform).tiles
    assert rows("cuda") != rows("cpu"), "sizes are those of the platform"


class Copies:
    """A kernel of TPUs alone, which writes its queries."""

    plain, gives_lse = False, True

    def why_not(self, call, target):
        return None if target == Target("tpu", "TPU v5 lite") else f"it runs on a TPU v5 lite, not on {target}"

    def prefers(self, call, target):
        return True, "always"

    def work(self, call, target):
        return Work(0, 0)

    def forward(self, call, target):
        def copy(q_ref, o_ref):
            o_ref[...] = q_ref[...]

        return pl.pallas_call(copy, out_shape=SDS(call.q.shape, call.q.dtype))(call.q), jnp.zeros(call.q.shape[:3])


@pytest.fixture
def copies(monkeypatch):
    monkeypatch.setattr("attnjax.backends.BACKENDS", {"copies": Copies(), **BACKENDS})
    monkeypatch.setitem(BACKENDS, "copies", Copies())
    yield
    run.clear_cache()


def test_one_module_holds_the_kernel_of_one_platform_once(copies):
    from jax._src.mesh import AbstractDevice  # JAX has no public name for it

    mesh = AbstractMesh((1,), ("d",), abstract_device=AbstractDevice("TPU v5 lite", 1, "tpu"))
    x = SDS((1, 2048, 1, 128), jnp.float32)
    f = jax.jit(lambda x: aj.attend(x, x, x, aj.Causal()))
    with jax.sharding.use_abstract_mesh(mesh):
        exported = export.export(f, platforms=("cpu", "cuda", "tpu"))(x)
    assert exported.mlir_module().count("tpu_custom_call") == 1

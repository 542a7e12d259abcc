"""Loading gives back the very model that was saved, or a ValueError that names what is wrong with the files."""

import dataclasses
import importlib
import json
import operator
import pickle
import random
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attnjax import models, nn
from attnjax.models import Config
from attnjax.models.weights import by_layer, check_fit
from attnjax.patterns import Causal, PerHead, Sink, Where, Window
from tests.models.saved import CONFIG, SHAPES, bits, decoder, edit_config, logits, pack, reseal, unpack

TOKENS = np.random.default_rng(0).integers(0, CONFIG.vocab_size, (2, 7))
TINY = dataclasses.replace(CONFIG, num_layers=2, layout="L", d_model=4, vocab_size=3, theta=100.0)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A saved CONFIG; tests take copies."""
    folder = tmp_path_factory.mktemp("saved")
    models.save(decoder(), folder)
    return folder


@pytest.fixture(autouse=True)
def traced_once(monkeypatch, request):
    if "flax" not in request.node.name:  # a skeleton made in one of flax's modes is not for the other
        for module in ("load", "save"):
            monkeypatch.setattr(importlib.import_module(f"attnjax.models.{module}"), "skeleton", SHAPES)


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "model")


@pytest.mark.cross
@pytest.mark.parametrize(
    "change",
    [
        dict(),
        dict(scan=False, tie_embeddings=True, qk_norm=False, remat=True),
        dict(param_dtype="bfloat16", dtype="bfloat16", layout="LLG"),
        dict(param_dtype="float16", num_layers=1, soft_cap=20, theta=None, head_dim=3, d_ff=None),
        dict(learned_sinks=True, dropout_rate=0.25, rope_scaling={"L": {"rope_type": "linear", "factor": 2.0}}),
        dict(legend={"L": PerHead((Window(2), Sink(1))), "G": ~Causal() | Causal(), "H": Window(5)}),
    ],
    ids=lambda change: "-".join(change) or "plain",
)
def test_what_was_saved_comes_back_bit_for_bit(tmp_path, change):
    config = dataclasses.replace(CONFIG, **change)
    model = decoder(config)
    models.save(model, tmp_path)
    loaded = models.load(tmp_path)
    assert loaded.config == config and hash(loaded.config) == hash(config)
    assert bits(loaded) == bits(model) and len(bits(model)) > 8 * config.num_layers
    assert nnx.split(loaded)[0] == nnx.split(model)[0]  # so that one compiled step serves both


@pytest.mark.slow
def test_logits_are_the_same_numbers_in_both_modes_of_flax(tmp_path):
    model = decoder(TINY)
    models.save(model, tmp_path)
    tokens = TOKENS % TINY.vocab_size
    for graph_mode in (True, False):
        with nnx.set_graph_mode(graph_mode):
            np.testing.assert_array_equal(logits(models.load(tmp_path), tokens), logits(model, tokens), strict=True)


@pytest.mark.parametrize("scan", [True, False], ids=["stacked", "unrolled"])
def test_a_stacked_model_loads_unrolled_and_the_other_way(tmp_path, scan):
    model = decoder(dataclasses.replace(CONFIG, scan=scan))
    models.save(model, tmp_path / "one")
    weights = (tmp_path / "one" / "model.safetensors").read_bytes()
    edit_config(tmp_path / "one", scan=not scan)
    other = models.load(tmp_path / "one")
    assert (model.periods is None, other.periods is None) == (not scan, scan)
    assert bits(other) == bits(model)
    models.save(other, tmp_path / "two")
    assert (tmp_path / "two" / "model.safetensors").read_bytes() == weights


def test_odd_numbers_keep_their_bits(tmp_path):
    model, odd = decoder(), np.array([np.nan, -np.nan, np.inf, -np.inf, -0.0, 1e-45, 3e38, 1], np.float32)
    model.norm.scale.set_value(jnp.asarray(odd))
    models.save(model, tmp_path)
    assert np.asarray(models.load(tmp_path).norm.scale[...]).tobytes() == odd.tobytes()


def test_a_loaded_model_trains_with_donated_buffers(folder):
    graph, params = nnx.split(models.load(folder), nnx.Param)
    before = bits(nnx.merge(graph, params))
    step = jax.jit(lambda params: jax.tree.map(lambda p: p * p.dtype.type(2), params), donate_argnums=0)
    after = bits(nnx.merge(graph, step(step(params))))
    for name, (dtype, _, data) in before.items():
        np.testing.assert_array_equal(np.frombuffer(after[name][2], dtype), 4 * np.frombuffer(data, dtype))
    assert bits(models.load(folder)) == before


@pytest.mark.parametrize(
    "pattern", ["window(2) & ~sink(1)", PerHead((Window(2), Causal())), Where(operator.gt) & Causal()]
)
def test_a_pattern_replaces_that_of_every_layer(folder, pattern):
    loaded = models.load(folder, pattern)
    want = Window(2) & ~Sink(1) if isinstance(pattern, str) else pattern
    assert {block.attention.pattern for block in map(loaded.block, range(5))} == {want}
    assert bits(loaded) == bits(models.load(folder))
    assert loaded.block(0).attention.rope.theta == 100.0 and loaded.block(1).attention.rope is None


def test_dtypes_are_as_saved_unless_others_are_asked_for(tmp_path):
    models.save(decoder(dataclasses.replace(CONFIG, dtype="float16", param_dtype="bfloat16")), tmp_path)
    plain, wide = models.load(tmp_path), models.load(tmp_path, dtype=jnp.float32, param_dtype="float32")
    assert (plain.config.dtype, plain.config.param_dtype) == (jnp.float16, jnp.bfloat16)
    assert wide.config == CONFIG
    narrow = bits(plain)
    for name, found in bits(wide).items():
        _, shape, data = narrow[name]
        assert found == ("float32", shape, np.frombuffer(data, jnp.bfloat16).astype(np.float32).tobytes())


def test_float64_weights_need_the_switch_or_another_dtype(tmp_path):
    config = dataclasses.replace(CONFIG, dtype="float64", param_dtype="float64")
    with jax.enable_x64(True):
        model = decoder(config)
        models.save(model, tmp_path)
        assert bits(models.load(tmp_path)) == bits(model)
    with pytest.raises(ValueError, match="param_dtype=float64, which JAX has switched off: pass param_dtype='float32'"):
        models.load(tmp_path)
    narrow = models.load(tmp_path, dtype="float32", param_dtype="float32")
    assert {dtype for dtype, *_ in bits(narrow).values()} == {"float32"}


def test_numbers_that_another_dtype_cannot_hold_are_named(folder):
    model = models.load(folder)
    model.norm.scale.set_value(model.norm.scale[...].at[2].set(1e5))
    models.save(model, folder)
    with pytest.raises(ValueError, match="weight 'norm.scale' holds numbers too large for float16"):
        models.load(folder, param_dtype="float16")
    models.load(folder, param_dtype="bfloat16")


@pytest.mark.parametrize(
    "error, match, arguments",
    [
        (ValueError, "there is no pattern 'windw'; did you mean 'window'", dict(pattern="windw(4)")),
        (ValueError, r"pattern=full\(\) looks at tokens after the query", dict(pattern="full()")),
        (ValueError, "has 3 heads, but num_heads=2", dict(pattern="perhead(causal(), causal(), causal())")),
        (TypeError, "pattern", dict(pattern=4)),
        (TypeError, "dtype=int32 is not a floating dtype", dict(dtype="int32")),
        (TypeError, "param_dtype='flot' is not a dtype", dict(param_dtype="flot")),
    ],
)
def test_wrong_arguments_are_named(folder, error, match, arguments):
    with pytest.raises(error, match=match):
        models.load(folder, **arguments)
    models.load(folder, "prefix(2)")


@pytest.mark.parametrize(
    "match, write",
    [
        ("x.what is a file, but no GGUF file; a folder is one of", {"x.what": b"what"}),
        ("x.bin is a pickle, which can run any code while it is read", {"x.bin": b"what"}),
        ("x.pt is a pickle", {"x.pt": pickle.dumps({"a": 1})}),
        ("x.PTH is a pickle", {"x.PTH": b"GGUF"}),
        (r"x.gguf \(8 bytes\) is damaged or manipulated: the number of weights takes 8", {"x.gguf": b"GGUF\3\0\0\0"}),
        ("format=None, but models.load reads 'attnjax' only", {"config.json": b'{"d_model": 4}'}),
        ("config.json is not valid JSON", {"config.json": pickle.dumps({"format": "attnjax"})}),
    ],
)  # fmt: skip
def test_other_kinds_of_models_are_named(tmp_path, match, write):
    ((name, data),) = write.items()
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=match):
        models.load(tmp_path if name == "config.json" else tmp_path / name)


def test_what_is_missing_is_named(folder):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        models.load(folder / "nowhere")
    (folder / "model.safetensors").rename(folder / "aside")
    with pytest.raises(FileNotFoundError, match="model.safetensors"):
        models.load(folder)
    (folder / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match="config.json"):
        models.load(folder)


def test_a_scaling_that_no_layer_had_is_dropped_and_one_of_no_letter_refused(folder):
    linear = {"rope_type": "linear", "factor": 2.0}
    legend = {"L": "window(3) | sink(1)", "G": "causal()", "X": "window(9)"}
    for scaling, kept in (({"X": linear}, None), ({"X": linear, "L": linear}, {"L": nn.LinearScaling(2.0)}), (None, None)):
        edit_config(folder, legend=legend, rope_scaling=scaling)
        assert models.load(folder).config.rope_scaling == kept
    edit_config(folder, rope_scaling={"Z": linear})
    with pytest.raises(ValueError, match="rope_scaling letter 'Z' is not in the legend"):
        models.load(folder)


@pytest.mark.parametrize(
    "match, changes",
    [
        ("format='other', but", dict(__format="other")),
        ("format_version=4, but this version of attnjax reads 1 to 3; the file was written by attnjax '0", dict(
            __format_version=4)),
        ("format_version=0, but this version", dict(__format_version=0)),
        ("config has the key 'qk_norm_eps', which format_version=1 did not have", dict(__format_version=1)),
        ("config has the key 'precision', which format_version=2 did not have", dict(__format_version=2)),
        ("precision=3 has the wrong type", dict(precision=3)),
        ("precision='fast' is unknown; use None, 'default', 'high', 'highest'", dict(precision="fast")),
        ("format_version=True", dict(__format_version=True)),
        ("the file has the unknown key 'confg'; did you mean 'config'", dict(__confg=1)),
        ("config must be an object", dict(__config=[])),
        ("checksums differ", dict(__weights_sha256="00")),
        ("checksums differ", dict(__weights_sha256=None)),
        ("config has the unknown key 'num_layer'; did you mean 'num_layers'", dict(num_layer=3)),
        ("num_layers='5' has the wrong type", dict(num_layers="5")),
        ("num_layers=True has the wrong type", dict(num_layers=True)),
        ("d_model=8.0 has the wrong type", dict(d_model=8.0)),
        ("scan=1 has the wrong type", dict(scan=1)),
        ("norm_eps=False has the wrong type", dict(norm_eps=False)),
        ("legend='causal\\(\\)' has the wrong type", dict(legend="causal()")),
        ("dtype=None cannot be saved", dict(dtype=None)),
        ("dtype='int8' cannot be saved", dict(dtype="int8")),
        (r"legend\['L'\]: .*did you mean 'window'", dict(legend={"L": "windo(3)", "G": "full()"})),
        (r"legend\['L'\]: .*holds a Python function", dict(legend={"L": "where(f)", "G": "full()"})),
        (r"legend\['L'\]: .*parentheses and ~ stand more than 100 deep", dict(legend={"L": "~" * 10_000 + "causal()", "G": "full()"})),
        ("layout letter 'X' is not in the legend", dict(layout="LX")),
        ("num_heads=2 is not a multiple of num_kv_heads=10{15}", dict(num_kv_heads=10**15)),
        ("num_layers=1000000000000, but model.safetensors holds", dict(num_layers=10**12)),
        ("make a weight larger than all .* bytes in model.safetensors", dict(d_model=10**15)),
        ("make a weight larger than all", dict(num_heads=10**15, num_kv_heads=7)),
        ("make a weight larger than all", dict(d_ff=10**19)),
        ("weight 'layers.0.attention.key.kernel' has shape \\(8, 4\\), the config asks for \\(8, 8\\)", dict(
            head_dim=8)),
        ("weight 'layers.4.*' is not part of this model", dict(num_layers=4)),
        ("weight 'layers.5.* is missing", dict(num_layers=6)),
        ("weight 'head.kernel' is not part of this model", dict(tie_embeddings=True)),
        ("weight 'embedding.table' is float32, the config asks for bfloat16", dict(param_dtype="bfloat16")),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, dict) else "",
)  # fmt: skip
def test_each_wrong_entry_of_the_config_is_named(folder, match, changes):
    edit_config(folder, **changes)
    with pytest.raises(ValueError, match=match) as fault:
        models.load(folder)
    assert str(folder) in str(fault.value)


@pytest.mark.parametrize("name", ["config", "weights_sha256", "format_version", "scan", "legend", "d_model"])
def test_a_missing_entry_of_the_config_is_named(folder, name):
    content = json.loads((folder / "config.json").read_text())
    (content if name in content else content["config"]).pop(name)
    (folder / "config.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=f"config.json: .*(lacks the key '{name}'|{name}=None)"):
        models.load(folder)


@pytest.mark.parametrize(
    "match, change",
    [
        ("weight '../../etc/passwd' is not part of this model", lambda h: h.update(
            {"../../etc/passwd": h.pop("norm.scale")})),
        ("weight 'norm.scal' is not part of this model; did you mean 'norm.scale'", lambda h: h.update(
            {"norm.scal": h.pop("norm.scale")})),
        ("has shape \\(1, 8\\), the config asks for \\(8,\\)", lambda h: h["norm.scale"].update(shape=[1, 8])),
    ],
)  # fmt: skip
def test_weights_that_are_not_those_of_the_config_are_named(folder, match, change):
    path = folder / "model.safetensors"
    header, payload = unpack(path.read_bytes())
    change(header)
    path.write_bytes(pack(header, payload))
    reseal(folder)
    with pytest.raises(ValueError, match=match):
        models.load(folder)


def mutated(rng, data):
    """The bytes with one flip, cut, gap, insertion or repetition."""
    at, much = rng.randrange(len(data)), rng.randrange(1, 40)
    return rng.choice(
        [
            data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :],
            data[:at],
            data[:at] + data[at + much :],
            data[:at] + rng.randbytes(much) + data[at:],
            data[:at] + data[at : at + much] + data[at:],
        ]
    )


NASTY = [None, True, -1, 0, 3, 2**31, 2**63, 10**19, 0.5, -0.0, 1e308, "", "G", "causal()", "float16", "é\0", [], [[]],
         {}, {"G": None}, {"L": "sink(1)", "G": {}}, {"L": 1, "G": 1e999}, {"rope_type": "yarn"}, {"factor": 2.0}]  # fmt: skip


def mutate_weights(rng, folder):
    """Damage that the checksum alone could find: in the header or in the numbers."""
    path = folder / "model.safetensors"
    data = path.read_bytes()
    place = rng.choice([len(data), 8 + int.from_bytes(data[:8], "little"), 8])
    path.write_bytes(mutated(rng, data[:place]) + data[place:])


def mutate_and_reseal(rng, folder):
    """The same with the checksum to go with it; half of the time other numbers, which nobody can tell."""
    path = folder / "model.safetensors"
    if rng.random() < 0.5:
        mutate_weights(rng, folder)
    else:
        header, payload = unpack(path.read_bytes())
        path.write_bytes(pack(header, payload[:-4] + rng.randbytes(4)))
    reseal(folder)


def mutate_header(rng, folder):
    """A header that is JSON, with a wrong value in one place, and the checksum to go with it."""
    path = folder / "model.safetensors"
    header, payload = unpack(path.read_bytes())
    entry = header[rng.choice(sorted(header))]
    key = rng.choice(sorted(entry))
    if isinstance(entry[key], list) and rng.random() < 0.7:
        entry[key] = [rng.choice([value, value + 4, 0, -value, 2**63, 1.5]) for value in entry[key]]
    else:
        entry[key] = rng.choice(NASTY)
    path.write_bytes(pack(header, payload))
    reseal(folder)


def mutate_config_bytes(rng, folder):
    path = folder / "config.json"
    path.write_bytes(mutated(rng, path.read_bytes()))


def mutate_config_field(rng, folder):
    names = [*(field.name for field in dataclasses.fields(Config)), "__format_version", "__config", "__weights_sha256"]
    edit_config(folder, **{rng.choice(names): rng.choice(NASTY)})


# Each with whether some of its mutations must load: those that make another valid model.
MUTATIONS = {
    mutate_weights: False, mutate_and_reseal: True, mutate_header: True, mutate_config_bytes: False,
    mutate_config_field: True,
}  # fmt: skip


@pytest.mark.parametrize("seeds", [range(15), pytest.param(range(15, 115), marks=pytest.mark.slow)], ids=len)
@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_each_mutation_gives_a_valid_model_or_a_value_error(tmp_path, mutate, seeds):
    models.save(decoder(TINY), tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    loaded = refused = 0
    for seed in seeds:
        mutate(random.Random(seed), tmp_path)
        try:
            model = models.load(tmp_path)
        except ValueError as fault:
            assert str(tmp_path) in str(fault), f"seed {seed}: {fault}"
            refused += 1
        else:
            assert mutate is not mutate_weights, f"seed {seed}: damaged weights were loaded"
            check_fit(by_layer(model), by_layer(SHAPES(model.config)), f"seed {seed}")
            loaded += 1
        for path, data in before.items():
            path.write_bytes(data)
    assert refused > len(seeds) / 4 and (loaded > 0 or len(seeds) < 100 or not MUTATIONS[mutate]), (loaded, refused)

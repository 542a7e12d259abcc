"""A published folder loads, or a ValueError names what is wrong with it; nothing is unpickled, nothing outside read."""

import json
import pickle
import random

import numpy as np
import pytest

from attnjax import models
from attnjax.models import published
from tests.models.published import GOLDEN, copied, edit_config, edit_weights, golden, weights_of, write_weights
from tests.models.saved import SHAPES, bits, pack, unpack

HEAD, TABLE = "lm_head.weight", "model.embed_tokens.weight"
Q = "model.layers.1.self_attn.q_proj.weight"


@pytest.fixture(autouse=True)
def traced_once(monkeypatch):
    monkeypatch.setattr(published, "skeleton", SHAPES)


@pytest.mark.parametrize(
    "match, change",
    [
        (f"weight '{Q}' is missing \\(1 of 51 are\\)", lambda w: w.pop(Q)),
        ("weight 'lm_head.weight' is missing", lambda w: w.pop(HEAD)),
        ("weight 'score.weight' is not part of this llama; did you mean", lambda w: w.update({"score.weight": w[HEAD]})),
        ("weight 'model.layers.3.*q_proj.weight' is not part of this llama", lambda w: w.update({Q.replace(".1.", ".3."): w[Q]})),
        (f"weight '{Q}s' is not part of this llama; did you mean '{Q}'", lambda w: w.update({Q + "s": w.pop(Q)})),
        ("q_norm.weight' is not part of this llama", lambda w: w.update({Q.replace("q_proj", "q_norm"): w["model.norm.weight"]})),
        (f"weight '{Q}' has shape \\(32, 48\\), the config asks for \\(48, 32\\)", lambda w: w.update({Q: w[Q].T})),
        ("weight 'model.norm.weight' has shape \\(1, 32\\), .* \\(32,\\)", lambda w: w.update({"model.norm.weight": w["model.norm.weight"][None]})),
        ("has shape \\(63, 32\\), the config asks for \\(64, 32\\)", lambda w: w.update({TABLE: w[TABLE][1:]})),
        ("weight '../../etc/passwd' is not part of", lambda w: w.update({"../../etc/passwd": w[HEAD]})),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_each_wrong_weight_is_named(tmp_path, match, change):
    folder = copied("llama", tmp_path)
    edit_weights(folder, change)
    with pytest.raises(ValueError, match=match) as fault:
        models.load(folder)
    assert str(folder) in str(fault.value)


def test_constants_that_old_folders_store_are_no_weights(tmp_path):
    folder = copied("llama", tmp_path)
    edit_weights(folder, lambda w: w.update({"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(6)}))
    assert bits(models.load(folder)) == bits(models.load(GOLDEN / "llama"))
    models.load_attention(folder, 0)


def test_tied_embeddings_may_be_stored_twice_if_they_are_the_same(tmp_path):
    folder = copied("qwen2", tmp_path)
    edit_weights(folder, lambda w: w.update({HEAD: w[TABLE]}))
    assert bits(models.load(folder)) == bits(models.load(GOLDEN / "qwen2"))
    edit_weights(folder, lambda w: w.update({HEAD: -w[TABLE]}))
    with pytest.raises(ValueError, match="tie_word_embeddings is true, but 'lm_head.weight' is not 'model.embed_tokens"):
        models.load(folder)
    edit_config(folder, tie_word_embeddings=False)
    assert models.load(folder).head is not None


@pytest.mark.parametrize(
    "match, fields",
    [
        ("is a gpt_oss: its MLP", dict(model_type="gpt_oss")),
        ("config.json is not valid JSON", None),
        ("model_type='bert' is not supported; known are llama, mistral", dict(model_type="bert")),
        ("the field 'alibi' .here True. is not known for llama", dict(alibi=True)),
        ("num_layers=1000000000000, but the model holds 51 weights", dict(num_hidden_layers=10**12)),
        ("d_model=10{15} and a width of 64 make a weight larger than all 30384 numbers", dict(hidden_size=10**15)),
        ("make a weight larger than all", dict(vocab_size=10**18)),
        ("make a weight larger than all", dict(intermediate_size=10**18)),
        ("make a weight larger than all", dict(num_attention_heads=10**18)),
        ("make a weight larger than all", dict(head_dim=10**18)),
        ("has shape", dict(num_key_value_heads=4)),
        ("weight 'model.layers.2.*' is not part of this llama", dict(num_hidden_layers=2)),
        ("weight 'model.layers.3.* is missing", dict(num_hidden_layers=4)),
        ("self_attn.k_proj.bias' is not part of this llama", dict(attention_bias=False)),
        ("weight 'model.layers.0.mlp.down_proj.bias' is not part of this qwen3", dict(model_type="qwen3")),
    ],
    ids=str,
)  # fmt: skip
def test_each_wrong_config_is_named(tmp_path, match, fields):
    folder = copied("llama", tmp_path)
    gone = () if fields is None or "model_type" not in fields else ("mlp_bias",)
    (folder / "config.json").write_text("{") if fields is None else edit_config(folder, *gone, **fields)
    with pytest.raises(ValueError, match=match) as fault:
        models.load(folder)
    assert str(folder) in str(fault.value)


def edit_index(folder, change):
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    change(index)
    path.write_text(json.dumps(index))


SECOND = "model-00002-of-00004.safetensors"


@pytest.mark.parametrize(
    "match, change",
    [
        (r"lies in '\.\./model-00002-of-00004.safetensors'; a shard is the plain name", lambda i: i["weight_map"].update({Q: "../" + SECOND})),
        ("lies in '/etc/passwd.safetensors'", lambda i: i["weight_map"].update({Q: "/etc/passwd.safetensors"})),
        ("lies in 'sub/x.safetensors'", lambda i: i["weight_map"].update({Q: "sub/x.safetensors"})),
        (r"lies in 'sub\\\\x.safetensors'", lambda i: i["weight_map"].update({Q: "sub\\x.safetensors"})),
        ("lies in '.hidden.safetensors'", lambda i: i["weight_map"].update({Q: ".hidden.safetensors"})),
        ("lies in 'pytorch_model.bin'", lambda i: i["weight_map"].update({Q: "pytorch_model.bin"})),
        ("lies in 3", lambda i: i["weight_map"].update({Q: 3})),
        ("weight_map must be an object", lambda i: i.update(weight_map={})),
        ("weight_map must be an object", lambda i: i.pop("weight_map")),
        (f"promises weight '{Q}' in model-00001-of-00004.safetensors, which does not hold it", lambda i: i["weight_map"].update({Q: "model-00001-of-00004.safetensors"})),
        (f"does not name weight '{Q}' in {SECOND}, which holds it", lambda i: i["weight_map"].pop(Q)),
        ("promises weight 'extra' in", lambda i: i["weight_map"].update(extra=SECOND)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_index_and_shards_agree_and_stay_inside(tmp_path, match, change):
    folder = copied("mistral", tmp_path)
    shard = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"][Q]
    assert shard == SECOND, "the cases above name the shard of this weight"
    edit_index(folder, change)
    with pytest.raises(ValueError, match=match) as fault:
        models.load(folder)
    assert str(folder) in str(fault.value)


def test_a_missing_shard_is_named(tmp_path):
    folder = copied("mistral", tmp_path)
    (folder / SECOND).unlink()
    with pytest.raises(FileNotFoundError, match=SECOND):
        models.load(folder)


def test_the_same_weights_in_one_file_are_the_same_model(tmp_path):
    folder = copied("mistral", tmp_path)
    weights = {}
    for shard in sorted(folder.glob("*.safetensors")):
        weights |= weights_of(shard)
        shard.unlink()
    (folder / "model.safetensors.index.json").unlink()
    write_weights(folder / "model.safetensors", weights)
    assert bits(models.load(folder)) == bits(models.load(GOLDEN / "mistral"))


class Bomb:
    """Says so when it is unpickled."""

    def __reduce__(self):
        return pytest.fail, ("it was unpickled",)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "consolidated.00.pth", "model.pt", "weights.pkl"])
def test_pickles_are_refused_by_name(tmp_path, name):
    folder = copied("llama", tmp_path)
    (folder / name).write_bytes(pickle.dumps(Bomb()))
    models.load(folder)  # beside safetensors it is not looked at
    with pytest.raises(ValueError, match=f"{name} is a pickle, which can run any code while it is read"):
        models.load(folder / name)
    (folder / "model.safetensors").unlink()
    for fault in (models.load, lambda folder: models.load_attention(folder, 0)):
        with pytest.raises(ValueError, match=f"{name} is a pickle"):
            fault(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ValueError, match=f"{name} is a pickle"):
        models.load(folder)
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match="config.json"):
        models.load(folder)


def test_a_folder_without_weights_says_so(tmp_path):
    folder = copied("llama", tmp_path)
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="holds neither model.safetensors nor model.safetensors.index.json"):
        models.load(folder)


def test_a_quantised_weight_is_named_and_one_that_nobody_asks_for_is_not_read(tmp_path):
    folder = copied("gpt_oss", tmp_path)
    path = folder / "model.safetensors"
    header, payload = unpack(path.read_bytes())
    entry = header["model.layers.1.mlp.experts.down_proj"]
    entry |= {"dtype": "U8", "shape": [entry["data_offsets"][1] - entry["data_offsets"][0]]}
    path.write_bytes(pack(header, payload))
    models.load_attention(folder, 1)
    entry = header["model.layers.1.self_attn.o_proj.weight"]
    entry["dtype"] = "I32"
    path.write_bytes(pack(header, payload))
    with pytest.raises(ValueError, match="o_proj.weight' is int32, so it is quantised or no weight; only F64, F32, F16"):
        models.load_attention(folder, 1)
    models.load_attention(folder, 0)


def test_numbers_that_another_dtype_cannot_hold_are_named(tmp_path):
    folder = copied("llama", tmp_path)
    edit_weights(folder, lambda w: w[Q].fill(1e5))
    with pytest.raises(ValueError, match="weight 'layers.1.attention.query.kernel' holds numbers too large for float16"):
        models.load(folder, param_dtype="float16")


def test_norms_get_their_one_in_float32(tmp_path):
    folder = copied("gemma2", tmp_path)
    small = np.float32(2.0**-20)
    edit_weights(folder, lambda w: w["model.norm.weight"].fill(small))
    assert (np.asarray(models.load(folder).norm.scale[...]) == np.float32(1) + small).all()


def test_weights_are_read_one_by_one_and_closed(tmp_path, monkeypatch):
    """Loading never holds the whole file beside the model."""
    from attnjax.models.files import WeightsFile

    read = []
    one = WeightsFile.read_one
    monkeypatch.setattr(WeightsFile, "read_one", lambda file, entry: read.append((file, entry.name)) or one(file, entry))
    monkeypatch.setattr(WeightsFile, "read", lambda file: pytest.fail("all at once"))
    models.load(GOLDEN / "mistral")
    assert sorted(name for _, name in read) == sorted({name for _, name in read}) and len(read) == 30
    assert all(file.file.closed for file, _ in read)


@pytest.mark.cross
@pytest.mark.parametrize("seed", range(4))
def test_damaged_folders_load_or_say_what_is_wrong(tmp_path, seed):
    """Flips, cuts, gaps and repetitions in config, index, headers: nothing but a ValueError or a whole model."""
    rng = random.Random(seed)
    folder = copied("mistral", tmp_path)
    files = {path: path.read_bytes() for path in folder.iterdir() if path.suffix in (".json", ".safetensors")}
    outcomes = set()
    for _ in range(50):
        path = rng.choice(sorted(files))
        data = files[path]
        head = 8 + int.from_bytes(data[:8], "little") if path.suffix == ".safetensors" else len(data)
        at, much = rng.randrange(head), rng.randrange(1, 30)
        path.write_bytes(
            rng.choice(
                [
                    data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :],
                    data[:at],
                    data[:at] + data[at + much :],
                    data[:at] + rng.randbytes(much) + data[at:],
                    data[:at] + data[at : at + much] + data[at:],
                ]
            )
        )
        try:
            models.load(folder)
        except (ValueError, FileNotFoundError) as fault:
            outcomes.add(type(fault))
        path.write_bytes(data)
    assert ValueError in outcomes
    assert golden("mistral")["logits"].shape == (2, 24, 64)
    assert bits(models.load(folder)) == bits(models.load(GOLDEN / "mistral"))

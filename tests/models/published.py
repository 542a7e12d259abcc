"""Published models to damage: a copy of a golden folder, its config and its weights changed."""

import json
import pathlib
import shutil

import numpy as np

from attnjax.models.files import WeightsFile
from tests.models.saved import pack

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "huggingface"
FAMILIES = "llama", "smollm2", "mistral", "qwen2", "qwen3", "gemma2", "gemma3"


def golden(name):
    return np.load(GOLDEN / f"{name}.npz")


def copied(name, folder):
    return pathlib.Path(shutil.copytree(GOLDEN / name, folder / name))


def edit_config(folder, *gone, **changes):
    """Changes fields of config.json, and takes some away."""
    path = folder / "config.json"
    fields = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in fields.items() if name not in gone}))


def weights_of(path):
    """{name: array} of a safetensors file."""
    with WeightsFile(path) as file:
        return {name: array.copy() for name, array in file.read()[0].items()}


def write_weights(path, weights):
    """Writes float32 arrays."""
    header, start, data = {}, 0, b""
    for name, array in weights.items():
        data += np.asarray(array, "<f4", order="C").tobytes()
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [start, len(data)]}
        start = len(data)
    path.write_bytes(pack(header, data))


def edit_weights(folder, change, file="model.safetensors"):
    """Lets `change(weights)` work on the arrays of a file."""
    weights = weights_of(folder / file)
    change(weights)
    write_weights(folder / file, weights)

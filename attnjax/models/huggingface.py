"""Reading a Hugging Face folder: config.json, and safetensors in one file or in shards with an index.

Nothing in the folder is trusted, unpickled or executed, and no file outside it is opened: a shard is named by the
index, and that name must be a plain one.
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attnjax.models.families import TOWER
from attnjax.models.files import DTYPES, HEADER_LIMIT, OTHER_DTYPES, Entry, WeightsFile, read_json
from attnjax.models.messages import shown
from attnjax.models.saved_config import WEIGHTS_FILE
from attnjax.models.source import Source

INDEX_FILE = "model.safetensors.index.json"
SHARD = re.compile(r"[\w\-][\w.\-]{0,200}\.safetensors")
# Formats that run code when they are read, or that nothing here reads.
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
SAFE = "is a pickle, which can run any code while it is read: models.load reads safetensors and GGUF only"

# Where a model with towers keeps the weights of its text tower, and those that read images, before and since 2025.
TEXT_TOWER = {
    "language_model.model.": "model.", "language_model.lm_head.": "lm_head.", "model.language_model.": "model.",
}  # fmt: skip
IMAGE_TOWER = tuple(f"{model}{part}." for model in ("", "model.") for part in ("vision_tower", "multi_modal_projector"))


def is_folder(saved: dict[str, Any]) -> bool:
    """Whether this is what a config.json of Hugging Face holds."""
    return "format" not in saved and not saved.keys().isdisjoint(("architectures", "model_type"))


@contextlib.contextmanager
def open_folder(folder: Path, config: dict[str, Any]) -> Iterator[Source]:
    """The folder with this config.json as a Source, whose weights can be read inside the `with` block.

    Raises:
        FileNotFoundError: if there are no weights.
        ValueError: if a file is damaged, index and shards disagree, or the weights are pickles only.
    """
    shards = _shards(folder)
    with contextlib.ExitStack() as stack:
        found: dict[str, tuple[WeightsFile, Entry]] = {}
        for name in [WEIGHTS_FILE] if shards is None else shards:
            file = stack.enter_context(WeightsFile(folder / name, DTYPES | OTHER_DTYPES))
            entries = {entry.name: entry for entry in file.entries}
            if shards is not None:
                _check_shard(folder, name, shards[name], set(entries))
            found |= {weight: (file, entry) for weight, entry in entries.items()}
        if config.get("model_type") == TOWER:
            found = _of_text_tower(folder, found)
        shapes = {weight: entry.shape for weight, (_, entry) in found.items()}
        yield Source(str(folder), config, shapes, lambda weight: found[weight][0].read_one(found[weight][1]))


def _of_text_tower(folder: Path, found: dict[str, Any]) -> dict[str, Any]:
    """The text tower's weights under the names that they have in a model of text alone, without the others."""
    names: dict[str, str] = {}
    for name in found:
        if name.startswith(IMAGE_TOWER):
            continue
        start = next((start for start in TEXT_TOWER if name.startswith(start)), "")
        alone = TEXT_TOWER.get(start, "") + name.removeprefix(start)
        if alone in names:
            both = f"{shown(names[alone])} and {shown(name)}"
            raise ValueError(f"{folder}: weights {both} are the same one of the text tower")
        names[alone] = name
    return {alone: found[name] for alone, name in names.items()}


def refuse_pickle(path: Path) -> None:
    """Raises a ValueError if the name is that of a pickle."""
    if path.suffix.lower() in PICKLES:
        raise ValueError(f"{path} {SAFE}")


def _shards(folder: Path) -> dict[str, set[str]] | None:
    """File name -> the weights that the index promises in it; None if all are in one file."""
    if (folder / WEIGHTS_FILE).exists():
        return None
    index = folder / INDEX_FILE
    if not index.exists():
        for path in sorted(folder.iterdir()):
            refuse_pickle(path)
        raise FileNotFoundError(f"{folder} holds neither {WEIGHTS_FILE} nor {INDEX_FILE}")
    weights = read_json(index, HEADER_LIMIT).get("weight_map")
    if not isinstance(weights, dict) or not weights:
        raise ValueError(f"{index}: weight_map must be an object that says in which file each weight lies")
    shards: dict[str, set[str]] = {}
    for weight, name in weights.items():
        if not isinstance(name, str) or not SHARD.fullmatch(name):
            raise ValueError(
                f"{index}: weight {shown(weight)} lies in {shown(name)}; a shard is the plain name of a .safetensors "
                "file in the same folder"
            )
        shards.setdefault(name, set()).add(weight)
    return shards


def _check_shard(folder: Path, name: str, wanted: set[str], found: set[str]) -> None:
    for weight in sorted(wanted ^ found):
        what, has = ("promises", "does not hold") if weight in wanted else ("does not name", "holds")
        raise ValueError(f"{folder / INDEX_FILE} {what} weight {shown(weight)} in {name}, which {has} it")

"""Whose heads the page draws: those of a model that was named, of one that lies here, or heads set by hand."""

import os
import pathlib

from attnjax.show.page import hand_set
from attnjax.show.page.scene import Scene


def find(model: str | os.PathLike | None) -> Scene:
    """Heads of `model`, or of what there is.

    Raises:
        FileNotFoundError: if `model` does not exist.
        ValueError: if it is none that the figures can use.
    """
    # flax and the loaders are imported where a model is read: heads set by hand need neither.
    if model is None:
        from attnjax.show.page import trained

        left = trained.LEFT / trained.ROW
        return trained.scene(left) if (left / "config.json").exists() else hand_set.scene()
    path = pathlib.Path(model)
    if not path.exists():
        raise FileNotFoundError(
            f"there is no model at {path}: name a GGUF file, a Hugging Face folder, or a folder that train check left"
        )
    if path.is_dir() and (path / "tokenizer.json").exists() or path.is_file():
        from attnjax.show.page import published

        return published.scene(path)
    from attnjax.show.page import trained

    return trained.scene(path)

"""Trained models kept on disk in the library's own format."""

import pathlib

from attnjax import models


def keep(model: models.Decoder, folder: pathlib.Path) -> str:
    """Saves a model for `models.load`; returns a line that says where, or why it was not saved.

    safetensors is the one package that training does not need otherwise, so a run goes on without it.
    """
    try:
        models.save(model, folder)
    except ImportError as error:
        return f"model not saved: {error}"
    return f"model in {folder}"

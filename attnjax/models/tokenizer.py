"""Text to token ids and back, as a published model's own files say it."""

import os
import typing
from pathlib import Path
from typing import Any

from attnjax.models.files import open_file
from attnjax.models.gguf_file import read_values

FILE = "tokenizer.json"
FILE_LIMIT = 128 * 2**20  # those of a quarter of a million words take 30 MB
CONTROL, USER = 3, 4  # kinds of tokens that text is searched for before it is cut into words
DIGITS_ALONE = {"gpt-2": False, "smollm": True}


@typing.no_type_check
def tokenizer(path: str | os.PathLike) -> Any:
    """The tokenizer of a published model, for prompts and for what `generate` wrote.

    Args:
        path: a GGUF file whose vocabulary is byte-level BPE (Sennrich et al. 2016, "Neural Machine Translation of
            Rare Words with Subword Units"; Radford et al. 2019, GPT-2) with the pre-tokenizer of GPT-2 or SmolLM, or
            a Hugging Face folder with `tokenizer.json`.

    Returns:
        A `tokenizers.Tokenizer`: `.encode(text).ids` and `.decode(ids)`.

    Raises:
        FileNotFoundError: if there is no such file.
        ImportError: if the `tokenizers` package is missing (or `gguf`, for a GGUF file).
        ValueError: if the file is damaged or manipulated, or its tokenizer is of another kind.

    Example:
        >>> import json, pathlib, tempfile
        >>> from attnjax import models
        >>> words = {"model": {"type": "WordLevel", "vocab": {"to": 0, "be": 1, "?": 2}, "unk_token": "?"}}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     text = json.dumps(words | {"pre_tokenizer": {"type": "Whitespace"}})
        ...     _ = pathlib.Path(folder, "tokenizer.json").write_text(text)
        ...     tokenizer = models.tokenizer(folder)
        >>> tokenizer.encode("to be or").ids
        [0, 1, 2]
    """
    try:
        import tokenizers
    except ImportError:
        raise ImportError("text is cut into tokens by the tokenizers package: pip install 'attnjax[models]'") from None
    path = Path(path)
    where = path / FILE if path.is_dir() else path
    try:
        if where.name == FILE:
            return tokenizers.Tokenizer.from_buffer(_whole(where))
        return _from_values(tokenizers, read_values(path))
    except (OSError, ImportError):
        raise
    except Exception as fault:  # the tokenizers package raises bare Exceptions
        raise ValueError(f"{where}: {fault}") from None


def _whole(path: Path) -> bytes:
    with open_file(path) as file:
        data = file.read(FILE_LIMIT + 1)
    if len(data) > FILE_LIMIT:
        raise ValueError(f"larger than {FILE_LIMIT} bytes")
    return data


def _from_values(tokenizers: Any, values: dict[str, Any]) -> Any:
    """Byte-level BPE from the values of a GGUF header."""
    kind, cut = values.get("tokenizer.ggml.model"), values.get("tokenizer.ggml.pre")
    if kind != "gpt2" or cut not in DIGITS_ALONE:
        raise ValueError(
            f"tokenizer.ggml.model={kind!r} with tokenizer.ggml.pre={cut!r} is not supported: byte-level BPE (gpt2) "
            f"with {' or '.join(DIGITS_ALONE)} is; others can be read from the {FILE} of the Hugging Face folder"
        )
    if values.get("tokenizer.ggml.add_space_prefix", False):
        raise ValueError("tokenizer.ggml.add_space_prefix is not supported beside byte-level BPE")
    tokens, merges = (values.get(f"tokenizer.ggml.{name}") for name in ("tokens", "merges"))
    kinds = values.get("tokenizer.ggml.token_type", [1] * len(tokens or ()))
    if not isinstance(tokens, list) or not isinstance(merges, list) or len(kinds) != len(tokens):
        raise ValueError("tokenizer.ggml.tokens, merges and token_type must be lists, one token_type for each token")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise ValueError("tokenizer.ggml.tokens has a token twice")
    pairs = [tuple(merge.split(" ")) for merge in merges]
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError("tokenizer.ggml.merges must hold pairs with one space between")
    found = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, pairs))
    cuts = [tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)]
    if DIGITS_ALONE[cut]:
        cuts.insert(0, tokenizers.pre_tokenizers.Digits(individual_digits=True))
    found.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(cuts)
    found.decoder = tokenizers.decoders.ByteLevel()
    found.add_special_tokens([token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL])
    found.add_tokens([token for token, kind in zip(tokens, kinds, strict=True) if kind == USER])
    return found

"""Text to token ids and back, as a published model's own files say it."""

import contextlib
import itertools
import math
import os
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from attnjax.models.files import open_file
from attnjax.models.gguf_file import read_values
from attnjax.models.messages import cut, shown

FILE = "tokenizer.json"
FILE_LIMIT = 128 * 2**20  # those of a quarter of a million words take 30 MB
UNKNOWN, CONTROL, USER = 2, 3, 4  # kinds of tokens that text is searched for before it is cut into words
DIGITS_ALONE = {"gpt-2": False, "smollm": True}
# What the format's reader takes for these two where a value is missing: nothing is added, and the ids are 11.
BEGIN_AND_END = 11
NOT_HERE = "add_space_prefix", "add_sep_token", "remove_extra_whitespaces"
LONGEST_PADDING = 2**20


@typing.no_type_check
def tokenizer(path: str | os.PathLike) -> Any:
    """The tokenizer of a published model, for prompts and for what `generate` wrote.

    Args:
        path: a GGUF file whose vocabulary is byte-level BPE (Sennrich et al. 2016, "Neural Machine Translation of
            Rare Words with Subword Units"; Radford et al. 2019, GPT-2) with the pre-tokenizer of GPT-2 or SmolLM, or
            a Hugging Face folder with `tokenizer.json`.

    Returns:
        A `tokenizers.Tokenizer`: `.encode(text).ids` and `.decode(ids)`. It adds the tokens for begin and end that the
        file asks for; `.encode(text, add_special_tokens=False)` does not.

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
    where = path / FILE if os.path.isdir(path) else path
    with _faults_of(where):
        if where.name == FILE:
            found = tokenizers.Tokenizer.from_buffer(_whole(where))
        else:
            found = _from_values(tokenizers, read_values(path))
        _try_out(found)
    return found


@contextlib.contextmanager
def _faults_of(where: Path) -> Iterator[None]:
    """What goes wrong inside is a ValueError that names the file, unless it is no fault of the file."""
    try:
        yield
    except (OSError, ImportError):
        raise
    except MemoryError as fault:
        raise ValueError(f"{where}: its words do not fit in memory: {cut(fault) or 'none is left'}") from None
    except BaseException as fault:
        # The tokenizers package raises bare Exceptions, and panics, which are not even that.
        if not isinstance(fault, Exception) and type(fault).__name__ != "PanicException":
            raise
        raise ValueError(str(fault) if str(where) in str(fault) else f"{where}: {cut(fault)}") from None


def _whole(path: Path) -> bytes:
    with open_file(path) as file:
        data = file.read(FILE_LIMIT + 1)
    if len(data) > FILE_LIMIT:
        raise ValueError(f"larger than {FILE_LIMIT} bytes")
    return data


def _try_out(found: Any) -> None:
    """Lets it work on a few texts, since a damaged one may panic as late as there, in whoever's hands it is then.

    Its errors are no reason to refuse it (it may have no word for some text), and texts that it could make very long
    are not tried. Runs of what its own rules name, one or two characters long, bring out expressions that backtrack for
    ever.
    """
    longest = max((found.padding or {}).get(name) or 0 for name in ("length", "pad_to_multiple_of"))
    if longest > LONGEST_PADDING:
        raise ValueError(f"it fills up texts to {longest} tokens; at most {LONGEST_PADDING} are supported")
    parts = found.normalizer, found.pre_tokenizer, found.decoder, found.post_processor
    rules = [b"" if part is None else part.__getstate__() for part in parts]
    added = re.findall(rb'"(?:content|prepend)":"((?:[^"\\]|\\.)*)', b"".join(rules[:3]))
    if math.prod(len(text) + 1 for text in added) > 1000 or len(rules[3]) > 2**16:
        return
    named = "aa11  \n\n" + b"".join(rules[:2]).decode(errors="ignore")[:2**16]
    runs = sorted({*named, *map("".join, itertools.pairwise(named))})[:1000]
    with contextlib.suppress(Exception):
        found.encode("")
    # Of a long text that is cut into pieces, templates that repeat it make products of pieces: more than memory holds.
    if cut_at := found.truncation:
        for pair in (False, True):
            room = cut_at["max_length"] - found.num_special_tokens_to_add(pair)
            if 0 < room <= cut_at["stride"]:
                repeated = cut_at["stride"]
                raise ValueError(f"it cuts texts into pieces of {room} tokens, of which {repeated} repeat; fewer must")
        found.no_truncation()
    with contextlib.suppress(Exception):
        found.encode("".join(f"{run * 40}\n" for run in runs))
    if cut_at:
        found.enable_truncation(**cut_at)
    with contextlib.suppress(Exception):
        found.encode("", "")
    with contextlib.suppress(Exception):
        found.decode(list(range(min(8, found.get_vocab_size()))))


def _from_values(tokenizers: Any, values: dict[str, Any]) -> Any:
    """Byte-level BPE from the values of a GGUF header."""
    kind, pre = values.get("tokenizer.ggml.model"), values.get("tokenizer.ggml.pre")
    if not isinstance(kind, str) or kind != "gpt2" or not isinstance(pre, str) or pre not in DIGITS_ALONE:
        raise ValueError(
            f"tokenizer.ggml.model={shown(kind)} with tokenizer.ggml.pre={shown(pre)} is not supported: byte-level BPE "
            f"(gpt2) with {' or '.join(DIGITS_ALONE)} is; others can be read from the {FILE} of the Hugging Face folder"
        )
    for flag in NOT_HERE:
        if values.get(f"tokenizer.ggml.{flag}", False) is not False:
            raise ValueError(f"tokenizer.ggml.{flag} is not supported beside byte-level BPE")
    tokens, merges = (values.get(f"tokenizer.ggml.{name}") for name in ("tokens", "merges"))
    kinds = values.get("tokenizer.ggml.token_type")
    if not isinstance(tokens, list) or not isinstance(merges, list) or not _kinds_of(kinds, len(tokens)):
        raise ValueError("tokenizer.ggml.tokens, merges and token_type must be lists, one token_type for each token")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise ValueError("tokenizer.ggml.tokens has a token twice")
    pairs = [tuple(merge.split(" ", 2)) for merge in merges]
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError("tokenizer.ggml.merges must hold pairs with one space between")
    found = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, pairs))
    cuts = [tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)]
    if DIGITS_ALONE[pre]:
        cuts.insert(0, tokenizers.pre_tokenizers.Digits(individual_digits=True))
    found.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(cuts)
    found.decoder = tokenizers.decoders.ByteLevel()
    if kinds is not None:
        found.add_special_tokens([tokens[i] for i in np.flatnonzero((kinds == CONTROL) | (kinds == UNKNOWN))])
        found.add_tokens([tokens[i] for i in np.flatnonzero(kinds == USER)])
    _add_begin_and_end(tokenizers, found, values, tokens)
    return found


def _kinds_of(kinds: Any, count: int) -> bool:
    return kinds is None or (isinstance(kinds, np.ndarray) and kinds.dtype.kind in "iu" and len(kinds) == count)


def _add_begin_and_end(tokenizers: Any, found: Any, values: dict[str, Any], tokens: list[str]) -> None:
    """Lets it begin and end what it encodes with the tokens that the values ask for."""
    added = []
    for name in ("bos", "eos"):
        flag = values.get(f"tokenizer.ggml.add_{name}_token", False)
        number = values.get(f"tokenizer.ggml.{name}_token_id", BEGIN_AND_END)
        if type(flag) is not bool:
            raise ValueError(f"tokenizer.ggml.add_{name}_token={shown(flag)} must be true or false")
        if flag and not (type(number) is int and 0 <= number < len(tokens)):
            raise ValueError(
                f"tokenizer.ggml.{name}_token_id={shown(number)} is not the number of one of {len(tokens)} tokens, and "
                f"tokenizer.ggml.add_{name}_token asks for it"
            )
        if flag:
            added.append({"id": name, "ids": [number], "tokens": [tokens[number]]})
    if added:
        names = [one["id"] for one in added]
        begin, end = (name if name in names else "" for name in ("bos", "eos"))
        one, two = f"{begin} $A {end}".split(), f"{begin} $B {end}".split()
        found.post_processor = tokenizers.processors.TemplateProcessing(
            single=one, pair=[*one, *(f"{piece}:1" for piece in two)], special_tokens=added
        )

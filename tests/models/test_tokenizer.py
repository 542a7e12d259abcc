"""Text to ids: what a GGUF header asks for is what the folder's tokenizer.json does, and a damaged one is a ValueError."""

import json

import pytest

from attnjax import models
from tests.models.gguf_written import write
from tests.models.test_gguf import LETTERS, VOCABULARY

BEGIN, END = 0, 11  # <end> and <tool>, here as begin and end
TEXTS = ["", "ab abc12", "<end>ab", "a ß <tool>c", "ab\n"]


def from_gguf(tmp_path, **values):
    named = {f"tokenizer.ggml.{name}": value for name, value in values.items()}
    return models.tokenizer(write(tmp_path / "m.gguf", **VOCABULARY | named))


def from_folder(tmp_path, single, pair):
    """The same tokenizer as a folder has it, with a post-processor that adds these."""
    piece = lambda name: {"Sequence" if len(name) == 1 else "SpecialToken": {"id": name, "type_id": 0}}
    added = [
        {"id": i, "content": LETTERS[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": not special, "special": special}
        for i, special in ((0, True), (11, False))
    ]  # fmt: skip
    special = {LETTERS[i]: {"id": LETTERS[i], "ids": [i], "tokens": [LETTERS[i]]} for i in (BEGIN, END)}
    file = {
        "version": "1.0", "added_tokens": added, "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]},
        "model": {"type": "BPE", "vocab": {token: i for i, token in enumerate(LETTERS)}, "merges": [["a", "b"], ["Ġ", "ab"]]},
        "post_processor": {"type": "TemplateProcessing", "single": [piece(name) for name in single], "pair": [piece(name) for name in pair], "special_tokens": special},
    }  # fmt: skip
    (tmp_path / "tokenizer.json").write_text(json.dumps(file))
    return models.tokenizer(tmp_path)


@pytest.mark.parametrize(
    "values, single",
    [
        (dict(), ["A"]),
        (dict(add_bos_token=False, add_eos_token=False, bos_token_id=BEGIN, eos_token_id=END), ["A"]),
        (dict(add_bos_token=True, bos_token_id=BEGIN), [LETTERS[BEGIN], "A"]),
        (dict(add_eos_token=True, eos_token_id=END), ["A", LETTERS[END]]),
        (dict(add_bos_token=True, bos_token_id=BEGIN, add_eos_token=True, eos_token_id=END), [LETTERS[BEGIN], "A", LETTERS[END]]),
        (dict(add_bos_token=True, add_eos_token=True, bos_token_id=END, eos_token_id=END), [LETTERS[END], "A", LETTERS[END]]),
        (dict(add_bos_token=True), [LETTERS[11], "A"]),  # what the format's reader takes for this kind
    ],
    ids=lambda value: "-".join(value),
)  # fmt: skip
def test_ids_are_those_of_the_folder(tmp_path, values, single):
    pair = [*single, *(name if name != "A" else "B" for name in single)]
    ours, theirs = from_gguf(tmp_path, **values), from_folder(tmp_path, single, pair)
    for text in TEXTS:
        assert ours.encode(text).ids == theirs.encode(text).ids
        assert ours.encode(text, "ab").ids == theirs.encode(text, "ab").ids
        assert ours.encode(text, add_special_tokens=False).ids == theirs.encode(text, add_special_tokens=False).ids
        assert ours.decode(ours.encode(text).ids) == theirs.decode(theirs.encode(text).ids)


def test_begin_and_end_by_hand(tmp_path):
    found = from_gguf(tmp_path, add_bos_token=True, bos_token_id=BEGIN, add_eos_token=True, eos_token_id=END).encode("ab c")
    assert (found.ids, found.tokens) == ([0, 7, 4, 3, 11], ["<end>", "ab", "Ġ", "c", "<tool>"])


def test_a_token_with_spaces_or_colons_may_begin(tmp_path):
    tokens = ["< a:1 $A>", *LETTERS[1:]]
    found = from_gguf(tmp_path, tokens=tokens, add_bos_token=True, bos_token_id=0)
    assert found.encode("ab").tokens == ["< a:1 $A>", "ab"]


@pytest.mark.parametrize(
    "match, values",
    [
        ("bos_token_id=12 is not the number of one of 12 tokens, and tokenizer.ggml.add_bos_token asks for it", dict(add_bos_token=True, bos_token_id=12)),
        ("eos_token_id=4294967295 is not the number", dict(add_eos_token=True, eos_token_id=2**32 - 1)),
        ("bos_token_id='<end>' is not the number", dict(add_bos_token=True, bos_token_id="<end>")),
        ("bos_token_id=True is not the number", dict(add_bos_token=True, bos_token_id=True)),
        ("bos_token_id=array", dict(add_bos_token=True, bos_token_id=[1, 2])),
        ("bos_token_id=11 is not the number of one of 4 tokens", dict(add_bos_token=True, tokens=["a", "b", "ab", "c"], merges=["a b"], token_type=[1] * 4)),
        ("add_bos_token=1 must be true or false", dict(add_bos_token=1)),
        ("add_eos_token='yes' must be true or false", dict(add_eos_token="yes")),
        (r"add_bos_token=array\(.* must be true or false", dict(add_bos_token=[True, False])),
        ("add_sep_token is not supported", dict(add_sep_token=True)),
        ("remove_extra_whitespaces is not supported", dict(remove_extra_whitespaces=True)),
        ("add_space_prefix is not supported", dict(add_space_prefix=[True, True])),
        ("one token_type for each token", dict(token_type=3)),
        ("one token_type for each token", dict(token_type=["a"] * 12)),
        ("must be lists", dict(tokens=[1, 2])),
        ("must be lists", dict(merges=7)),
        ("tokenizer.ggml.model=array.* is not supported", dict(model=[1, 2])),
        ("tokenizer.ggml.pre=array.* is not supported", dict(pre=[1, 2])),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_wrong_value_is_named(tmp_path, match, values):
    with pytest.raises(ValueError, match=match) as fault:
        from_gguf(tmp_path, **values)
    assert "m.gguf: " in str(fault.value)


WORDS = {"version": "1.0", "model": {"type": "WordLevel", "vocab": {"to": 0, "be": 1, "?": 2}, "unk_token": "?"}, "pre_tokenizer": {"type": "Whitespace"}}
SEQUENCE = lambda name: {"Sequence": {"id": name, "type_id": 0}}
UNKNOWN = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}


def template(single, pair):
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": {}}


def split(expression):
    return {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}


HOSTILE = {
    "a charsmap that is none": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
    "a charsmap that is empty": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": ""}},
    "a charsmap that ends early": {"normalizer": {"type": "Sequence", "normalizers": [{"type": "Precompiled", "precompiled_charsmap": "BAAAAAAAAAA="}]}},
    "a processor that names an unknown token": {"post_processor": template([UNKNOWN, SEQUENCE("A")], [SEQUENCE("A"), SEQUENCE("B")])},
    "one that names it for pairs": {"post_processor": template([SEQUENCE("A")], [UNKNOWN, SEQUENCE("A"), SEQUENCE("B")])},
    "an expression that backtracks": {"pre_tokenizer": split("(a+)+b")},
    "one on words": {"pre_tokenizer": split(r"(\w+\s?)+$x")},
    "one on another letter": {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}, split("(qq?)+z")]}},
    "one on two letters": {"pre_tokenizer": split("((qx)+)+z")},
    "one in the normalizer": {"normalizer": {"type": "Replace", "pattern": {"Regex": "(a|a)*c"}, "content": "d"}},
    "a stride that is too long": {"truncation": {"max_length": 3, "stride": 3, "strategy": "LongestFirst", "direction": "Right"}},
    "padding that fits nowhere": {"padding": {"strategy": {"Fixed": 10**13}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "?"}},
    "an expression that is none": {"pre_tokenizer": split("(")},
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_tokenizer_is_a_value_error_that_names_the_file(tmp_path, name):
    """Also where the package panics, which is no Exception, and as late as in the first text."""
    (tmp_path / "tokenizer.json").write_text(json.dumps(WORDS | HOSTILE[name]))
    with pytest.raises(ValueError, match="tokenizer.json: ") as fault:
        models.tokenizer(tmp_path)
    assert len(str(fault.value)) < 800


def test_what_only_lacks_words_is_no_fault(tmp_path):
    lacking = WORDS | {"model": {"type": "WordLevel", "vocab": {"to": 0, "be": 1}, "unk_token": "?"}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(lacking))
    assert models.tokenizer(tmp_path).encode("to be").ids == [0, 1]


def test_texts_are_not_tried_that_would_grow_without_end(tmp_path):
    """64 rules that double every letter."""
    doubling = [{"type": "Replace", "pattern": {"Regex": "[a1]"}, "content": "aa"}] * 64
    (tmp_path / "tokenizer.json").write_text(json.dumps(WORDS | {"normalizer": {"type": "Sequence", "normalizers": doubling}}))
    assert models.tokenizer(tmp_path).encode("to").ids == [0]


def test_an_interruption_is_not_swallowed(tmp_path, monkeypatch):
    import tokenizers

    class Interrupted:
        @staticmethod
        def from_buffer(data):
            raise KeyboardInterrupt

    (tmp_path / "tokenizer.json").write_text(json.dumps(WORDS))
    monkeypatch.setattr(tokenizers, "Tokenizer", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        models.tokenizer(tmp_path)


def test_words_that_fit_no_memory(tmp_path, monkeypatch):
    import tokenizers

    class Small:
        @staticmethod
        def from_buffer(data):
            raise MemoryError("8 EiB")

    (tmp_path / "tokenizer.json").write_text(json.dumps(WORDS))
    monkeypatch.setattr(tokenizers, "Tokenizer", Small)
    with pytest.raises(ValueError, match="tokenizer.json: its words do not fit in memory: 8 EiB"):
        models.tokenizer(tmp_path)

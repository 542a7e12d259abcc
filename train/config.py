"""Settings of a run: TOML read into frozen dataclasses, every key and type checked."""

import dataclasses
import difflib
import pathlib
import tomllib
import types
import typing
from typing import Any

import jax.numpy as jnp
import numpy as np

import attnjax as aj
from attnjax import models
from train.limits import BYTES, LARGEST, PATH, SEEDS, number, positive, short, shown, within


@dataclasses.dataclass(frozen=True)
class Model:
    """The decoder; fields as in `models.Config`, patterns as text."""

    layout: str
    legend: dict[str, str]
    d_model: int = 64
    num_layers: int = 2
    num_heads: int = 4
    num_kv_heads: int | None = 2
    head_dim: int | None = None
    d_ff: int | None = None
    theta: float | dict[str, float] = 10000.0
    tie_embeddings: bool = False
    qk_norm: bool = False
    soft_cap: float | None = None
    dropout_rate: float = 0.0  # of the attention weights, in training
    norm_eps: float = 1e-6
    dtype: str = "float32"
    param_dtype: str = "float32"
    remat: bool = False

    def __post_init__(self):
        sizes = ("d_model", "num_layers", "num_heads", "num_kv_heads", "head_dim", "d_ff")
        positive("model", **{name: size for name in sizes if (size := getattr(self, name)) is not None})

    @property
    def weights(self) -> int:
        """The least number of weights that the layers have, whatever else is set."""
        head_dim = self.head_dim or max(1, self.d_model // self.num_heads)
        d_ff = self.d_ff or 8 * self.d_model // 3
        return self.num_layers * self.d_model * (2 * self.num_heads * head_dim + 3 * d_ff + 2)

    def build(self, vocab_size: int) -> models.Config:
        """The library's own record, which checks the values.

        Raises:
            ValueError: if it refuses them.
        """
        fields = dataclasses.asdict(self)
        for name in ("dtype", "param_dtype"):
            if fields[name] not in ("float32", "bfloat16", "float16"):
                raise ValueError(f"model.{name}={shown(fields[name])} is none of 'float32', 'bfloat16', 'float16'")
            fields[name] = jnp.dtype(fields[name])
        fields["legend"] = {letter: aj.parse(text) for letter, text in self.legend.items()}
        try:
            return models.Config(vocab_size=vocab_size, **fields)
        except TypeError as error:
            raise ValueError(f"model: {error}") from None


@dataclasses.dataclass(frozen=True)
class Data:
    """The text: a UTF-8 file, or Python's own help when `path` is left out."""

    path: str | None = None
    length: int = 128  # bytes per sequence
    batch: int = 32  # sequences per step

    def __post_init__(self):
        positive("data", length=self.length, batch=self.batch)


@dataclasses.dataclass(frozen=True)
class Optim:
    """AdamW with linear warm-up and cosine."""

    steps: int = 750
    learning_rate: float = 3e-3  # the highest
    lowest_rate: float = 3e-4  # at the last step
    warmup: int = 50
    weight_decay: float = 0.01
    b2: float = 0.98
    clip: float = 1.0  # of the global gradient norm

    def __post_init__(self):
        positive("optim", steps=self.steps, learning_rate=self.learning_rate, clip=self.clip)
        within("optim.warmup", self.warmup, 0, LARGEST)
        for name in ("lowest_rate", "weight_decay"):
            if getattr(self, name) < 0:
                raise ValueError(f"optim.{name}={getattr(self, name)} must not be below 0")
        if self.lowest_rate > self.learning_rate:
            raise ValueError(f"optim.lowest_rate={self.lowest_rate} must not be above "
                             f"optim.learning_rate={self.learning_rate}, the highest rate")
        if not (0 <= self.b2 and np.float32(self.b2) < 1):
            raise ValueError(f"optim.b2={self.b2} must be from 0 up and, as a float32, below 1")


@dataclasses.dataclass(frozen=True)
class Run:
    """What is shown and kept."""

    seed: int = 0
    log_every: int = 25
    eval_every: int = 250
    save_every: int = 250  # steps between checkpoints; one more is written at the end
    keep: int = 2  # how many checkpoints stay, the newest ones
    devices: int | None = None  # that share each batch; None takes all of this host
    sample: int = 400  # bytes written at the end; 0 writes none
    temperature: float = 0.8

    def __post_init__(self):
        positive("run", log_every=self.log_every, eval_every=self.eval_every, save_every=self.save_every,
                 keep=self.keep, temperature=self.temperature)
        if self.devices is not None:
            positive("run", devices=self.devices)
        within("run.seed", self.seed, *SEEDS)
        within("run.sample", self.sample, 0, BYTES)


@dataclasses.dataclass(frozen=True)
class Settings:
    """All settings of a run."""

    model: Model
    data: Data = Data()
    optim: Optim = Optim()
    run: Run = Run()


def read(path: pathlib.Path, changes: list[str] | None = None) -> Settings:
    """Reads a TOML file and applies changes such as "optim.steps=100".

    Raises:
        ValueError: for a file that is missing or not TOML, an unknown key (with the nearest one), a key that is
            missing, and a value of the wrong type or beyond its bounds.
    """
    name = f"config {shown(str(path), PATH)}"
    if "\0" in str(path):
        raise ValueError(f"{name} cannot be the path of a file: it holds the byte 0")
    try:
        if path.is_char_device():
            raise ValueError("it is a device")
        table = _toml(path.read_bytes().decode())
    except OSError as error:
        raise ValueError(f"{name} cannot be read ({error.strerror}){_beside(path)}") from error
    except ValueError as error:  # UnicodeDecodeError is one too
        raise ValueError(f"{name} is not TOML: {error}") from error
    for change in changes or []:
        _change(table, change)
    return from_table(table)


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _beside(path: pathlib.Path) -> str:
    """Which configs there are in the folder of one that cannot be read."""
    try:
        near = sorted(p.name for p in path.parent.glob("*.toml"))
    except OSError:
        near = []
    return f"; in {short(path.parent)} there are {', '.join(near)}" if near else ""


def from_table(table: dict[str, Any]) -> Settings:
    """Settings from nested tables, as TOML or the record of a run holds them.

    Raises:
        ValueError: for an unknown key (with the nearest one), a missing one, and a value of the wrong type or beyond
            its bounds.
    """
    return _fill(Settings, table, "")


def _change(table: dict[str, Any], change: str) -> None:
    key, equals, text = change.partition("=")
    if not equals:
        raise ValueError(f"--set {shown(change)} has no '='; write it as key=value, for example optim.steps=100")
    try:
        value = _toml(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text  # a bare word or a pattern: the shell has eaten the quotes
    except ValueError as error:
        raise ValueError(f"--set {shown(change)} cannot be read: {error}") from None
    *sections, last = key.strip().split(".")
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise ValueError(f"--set {shown(change)}: {section!r} is a value, not a section")
    table[last] = value


def _fill(kind: type, table: Any, prefix: str) -> Any:
    if not isinstance(table, dict):
        raise ValueError(f"{prefix.rstrip('.')!r} is a section, not a value; got {shown(table)}")
    hints = typing.get_type_hints(kind)
    for key in table:
        if key not in hints:
            raise ValueError(f"unknown setting {shown(prefix + key)}; did you mean {_nearest(prefix, key)!r}?")
    values = {}
    for field in dataclasses.fields(kind):
        name, hint = prefix + field.name, hints[field.name]
        if field.name in table:
            value = table[field.name]
            section = isinstance(hint, type) and dataclasses.is_dataclass(hint)
            values[field.name] = _fill(hint, value, name + ".") if section else _typed(hint, value, name)
        elif field.default is dataclasses.MISSING:
            raise ValueError(f"setting {name!r} is missing and has no default")
    return kind(**values)


def _typed(hint: Any, value: Any, name: str) -> Any:
    for option in typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,):
        if option is float and type(value) in (int, float):
            return number(name, value)
        if typing.get_origin(option) is dict and isinstance(value, dict):
            return {key: _typed(typing.get_args(option)[1], item, f"{name}.{key}") for key, item in value.items()}
        if type(value) is option:
            return value
    wanted = str(hint).removeprefix("<class '").removesuffix("'>").replace(" | None", "")
    raise ValueError(f"setting {shown(name)} must be {wanted}, not {type(value).__name__} {shown(value)}")


def _nearest(prefix: str, key: str) -> str:
    """The full name most like this one: same section first, then the same word elsewhere."""
    names, key = known(), key[:100]
    here = [name for name in names if name.startswith(prefix)] if prefix else names
    for candidates in (here, names):
        by_word = {name.rpartition(".")[2]: name for name in reversed(candidates)}
        if near := difflib.get_close_matches(key, by_word, n=1, cutoff=0.5):
            return by_word[near[0]]
    return difflib.get_close_matches(prefix + key, names, n=1, cutoff=0.0)[0]


def known() -> list[str]:
    """The full names of all sections and settings."""
    names = []
    for section, kind in typing.get_type_hints(Settings).items():
        names += [section, *(f"{section}.{field.name}" for field in dataclasses.fields(kind))]
    return names

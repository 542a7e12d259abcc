"""A table that says what each head of a model does."""

import dataclasses
import typing
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from attnjax.dropout import check_key
from attnjax.heads.measure import check_model, check_tokens, measured, names_of
from attnjax.heads.probes import repeats
from attnjax.models.decoder import Decoder
from attnjax.patterns.checks import integer

# (name, score, from where on): a head has the name of its highest score among these.
NAMES = (
    ("induction", "induction", 0.4),
    ("previous token", "previous_token", 0.4),
    ("duplicate token", "duplicate_token", 0.4),
)
RESTING = ("resting", "first_token", 0.5)  # for heads that do none of these
COLUMNS = {
    "previous": "previous_token", "induction": "induction", "prefix": "prefix_matching", "duplicate": "duplicate_token",
    "copying": "copying", "first": "first_token", "sinks": "sink_rate", "learned": "learned_sink", "entropy": "entropy",
    "distance": "mean_distance",
}  # fmt: skip


class Named(NamedTuple):
    """A head and what it does; prints as in the literature, layer.head from 0.

    Example:
        >>> from attnjax.heads import Named
        >>> print(Named(18, 6, "induction", 0.9499))
        18.6 induction 0.95
    """

    layer: int
    head: int
    name: str
    score: float

    def __str__(self) -> str:
        return f"{self.layer}.{self.head} {self.name} {self.score:.2f}"


@dataclasses.dataclass(frozen=True, eq=False)
class Report:
    """What `report` found: a table when printed, arrays [layers, heads] by name of the score as `report[...]`.

    Args:
        scores: score -> [layers, heads].
        measured: what was measured on what, for people.

    Raises:
        KeyError: if there is no such score, listing those that there are.

    Example:
        >>> import numpy as np
        >>> from attnjax.heads import Report
        >>> found = Report({"induction": np.array([[0.1, 0.2], [0.9, 0.3]])}, "by hand")
        >>> print(*found.heads, found["induction"][1, 0], found.names.tolist())
        1.0 induction 0.90 0.9 [['', ''], ['induction', '']]
    """

    scores: dict[str, np.ndarray]
    measured: str = ""

    def __getitem__(self, score: str) -> np.ndarray:
        if score not in self.scores:
            raise KeyError(f"no score {score!r}; there are {', '.join(self.scores)}")
        return self.scores[score]

    @property
    def heads(self) -> tuple[Named, ...]:
        """Every head that has a name, by name and then from the highest score down."""
        order = [name for name, _, _ in (*NAMES, RESTING)]
        found = [head for row in self._named() for head in row if head.name]
        return tuple(sorted(found, key=lambda head: (order.index(head.name), -head.score)))

    @property
    def names(self) -> np.ndarray:
        """What each head is called, [layers, heads]; "" if nothing fits."""
        return np.array([[head.name for head in row] for row in self._named()])

    def top(self, score: str, n: int = 5) -> tuple[Named, ...]:
        """The n heads with the highest score, whatever they are called."""
        array, n = self[score], integer("n", n, 0)
        order = np.argsort(-array, axis=None, kind="stable")[:n]
        places = [divmod(int(i), array.shape[1]) for i in order]
        return tuple(Named(layer, head, score, float(array[layer, head])) for layer, head in places)

    def table(self, most: int | None = 8) -> str:
        """The table as text, with at most so many heads of each name; None shows all."""
        if most is not None:
            most = integer("most", most, 0)
        columns = {short: self.scores[score] for short, score in COLUMNS.items() if score in self.scores}
        lines = [self.measured] if self.measured else []
        titles = "".join(f"{short:>{len(short) + 2}}" for short in columns)
        lines.append(f"{'head':<6}{'name':<17}{'score':>5}{titles}")
        heads = self.heads
        for name, _, _ in (*NAMES, RESTING):
            own = [head for head in heads if head.name == name]
            for head in own[:most]:
                place = f"{head.layer}.{head.head}"
                cells = (f"{array[head.layer, head.head]:>{len(short) + 2}.2f}" for short, array in columns.items())
                lines.append(f"{place:<6}{name:<17}{head.score:>5.2f}" + "".join(cells))
            if len(own) > len(own[:most]):
                lines.append(f"{'':<6}and {len(own) - len(own[:most])} more that are {name}")
        unnamed = sum(not head.name for row in self._named() for head in row)
        return "\n".join([*lines, f"{'':<6}{unnamed} heads have no name: none of these scores is high"])

    def __str__(self) -> str:
        return self.table()

    def _named(self) -> list[list[Named]]:
        """Every head, with "" and its weight at rest where nothing fits."""
        shape = next(iter(self.scores.values())).shape
        return [[self._name(layer, head) for head in range(shape[1])] for layer in range(shape[0])]

    def _name(self, layer: int, head: int) -> Named:
        at = {score: float(array[layer, head]) for score, array in self.scores.items()}
        does = [(at[score], name) for name, score, least in NAMES if at.get(score, 0.0) >= least]
        if does:
            score, name = max(does)
            return Named(layer, head, name, score)
        rest = at.get("first_token", 0.0) + at.get("learned_sink", 0.0)
        return Named(layer, head, RESTING[0] if rest >= RESTING[2] else "", rest)


@typing.no_type_check
def report(
    model: Decoder,
    tokens: Int[Array, "B T"] | None = None,
    *,
    key: PRNGKeyArray | None = None,
    bos: int = 0,
    period: int | None = None,
    draws: int = 10,
) -> Report:
    """Names the heads of a model by what they do.

    Induction and duplicate-token scores come from probes that the model has never seen: `bos`, then a round of random
    tokens said twice; prefix matching and copying from a round of 25 said four times (Olsson et al. 2022). What heads
    do on text (previous token, first token, entropy, distance) is measured on `tokens`, or on the first probes.

    A head is named after its highest score among induction, previous token and duplicate token, if that is 0.4 or
    more; else it is resting if half of its weight lies on the first token (or in a learned sink).

    Args:
        model: a decoder, of whatever heads, patterns and learned sinks.
        tokens: [B, T] ids of text, T at least 2, without padding.
        key: draws the probes; None means `jax.random.key(0)`.
        bos: the token that every probe begins with: the model's beginning-of-text token where it has one.
        period: tokens in a round said twice, all different; None means 64, or what a small vocabulary has. A layer
            that sees less far back than this cannot show induction.
        draws: probes of each kind; Olsson et al. 2022 take 10.

    Returns:
        A `Report`: print it, or take arrays [layers, heads] out of it.

    Raises:
        TypeError: if `model` is no Decoder, or `tokens` or a number are no ints.
        ValueError: if `tokens` are not [B, T] with T >= 2, an id is outside the vocabulary, or the vocabulary is too
            small for the probes.

    Example:
        >>> from attnjax import heads, models
        >>> from flax import nnx
        >>> config = models.Config(vocab_size=64, d_model=16, num_layers=2, num_heads=2)
        >>> found = heads.report(models.Decoder(config, rngs=nnx.Rngs(0)), draws=2)
        >>> found["induction"].shape, [str(head) for head in found.heads]
        ((2, 2), [])
    """
    vocab_size = check_model(model).config.vocab_size
    text = None if tokens is None else check_tokens(model, tokens)
    two_key, four_key = jax.random.split(jax.random.key(0) if key is None else check_key(key))
    twice = repeats(two_key, vocab_size, copies=2, period=period, draws=draws, bos=bos)
    fours = repeats(four_key, vocab_size, copies=4, period=None, draws=draws, bos=bos)
    always = names_of(model)
    on_twice = ("induction", "duplicate_token", *(always if text is None else ()))
    scores = measured(model, twice, on_twice, period=(twice.shape[1] - 1) // 2)
    scores |= measured(model, fours, ("prefix_matching", "copying"), period=(fours.shape[1] - 1) // 4)
    scores |= {} if text is None else measured(model, text, always)
    where = "the same" if text is None else f"{text.shape[0]} rows of {text.shape[1]} tokens of text"
    shape = scores["induction"].shape
    about = (
        f"{shape[0]} layers of {shape[1]} heads; induction and duplicate on {draws} probes of {twice.shape[1]} "
        f"tokens, prefix and copying on {draws} of {fours.shape[1]}, the rest on {where}"
    )
    return Report(scores, about)

"""The learning check as a literal table: what each pattern must learn, and what it must not.

A row trains one small decoder. `seen` are bands of what the pattern makes visible, `hidden` of what it hides.
The distances are written out and not computed from the library's own masks, which would then judge themselves;
L layers of window(w) reach L * (w - 1), since the window counts the query itself.
"""

import dataclasses

from train.bands import Band, reached, unreached
from train.tasks import Backcopy, Delay, FlipFlop, Mqar, Reach, Recall, Repeat, SelectiveCopy, Task, Text


@dataclasses.dataclass(frozen=True)
class Row:
    """One training run and what must come of it.

    Attributes:
        name: what the command line and the report call it.
        shows: what a reader learns from it.
        task: what is trained and measured.
        layers: one letter per layer, as in `models.Config.layout`.
        legend: the pattern of each letter.
        steps: the most training steps; a row stops early once `seen` is inside. Without `seen`, all of them.
        seen: bands that training must get into.
        hidden: bands that training must not get out of.
        heads: query heads.
        kv_heads: key and value heads.
        mlp: width of the MLP, None for the default; a narrow one leaves more to the heads.
        batch: sequences per step.
        rate: peak learning rate.
        seed: of the parameters and the data.
        keep: whether `train check` saves the trained model (under models/ in its folder; the figures read them).
        allow_future: let the decoder have a pattern that shows the future (only a broken row does).
    """

    name: str
    shows: str
    task: Task
    layers: str
    legend: dict[str, str]
    steps: int
    seen: tuple[Band, ...] = ()
    hidden: tuple[Band, ...] = ()
    heads: int = 4
    kv_heads: int = 2
    mlp: int | None = None
    batch: int = 32
    rate: float = 3e-3
    seed: int = 0
    keep: bool = False
    allow_future: bool = False

    @property
    def pattern(self) -> str:
        """The patterns of the layers in a few words."""
        texts = [self.legend[letter] for letter in self.layers]
        return f"{len(texts)} x {texts[0]}" if len(set(texts)) == 1 else ", ".join(texts)


WINDOW, SINK, STRIDED = {"L": "window(8)"}, {"L": "window(8) | sink(1)"}, {"L": "window(8) | strided(8)"}
STRIDE, CAUSAL, CHUNKED, PREFIX = {"L": "strided(8)"}, {"L": "causal()"}, {"L": "chunked(8)"}, {"L": "prefix(8)"}
HYBRID = {"L": "window(8)", "G": "causal()"}
NARROW, NARROW_HYBRID = {"L": "window(4)"}, {"L": "window(4)", "G": "causal()"}
START, LATER = Reach(length=64, at=0), Reach(length=64, at=5)
SHORT, AHEAD = Reach(length=32, at=0), Reach(length=32, at=7, ahead=True)
# 1 is the loss of counted byte pairs; far below it a model of this size can only be reading its targets.
BELOW_BIGRAM = Band("bigram", 0.4, 0.97)

QUICK = (
    Row("window-1", "one layer of window(4) sees 3 tokens back", SHORT, "L", NARROW, 300,
        (reached("1..3"),), (unreached("4..31", 1 / 16),)),
    Row("window-2", "two layers of window(4) see 6 tokens back: L * (w - 1), not L * w", SHORT, "LL", NARROW, 400,
        (reached("1..6"),), (unreached("7..31", 1 / 16),)),
    Row("sink-0", "a sink keeps the first token in sight at any distance", START, "L", SINK, 300,
        (reached("1..63"),)),
    Row("sink-5", "a sink keeps the first token only: token 5 is seen through the window", LATER, "L", SINK, 300,
        (reached("1..7"),), (unreached("-5..-1,8..58", 1 / 16),)),
    Row("strided-5", "window and stride: the pattern itself, read off the accuracy", LATER, "L", STRIDED, 300,
        (reached("1..8,16,24,32,40,48,56"),),
        (unreached("-5..-1,9..15,17..23,25..31,33..39,41..47,49..55,57..58", 1 / 16),)),
    Row("full-5", "causal attention sees everything behind and nothing ahead", LATER, "L", CAUSAL, 300,
        (reached("1..58"),), (unreached("-5..-1", 1 / 16),)),
    Row("stride", "residue classes never mix, whatever the depth", START, "LL", STRIDE, 400,
        (reached("8,16,24,32,40,48,56"),),
        (unreached("1..7,9..15,17..23,25..31,33..39,41..47,49..55,57..63", 1 / 16),)),
    Row("chunked", "nothing crosses the edge of a chunk, whatever the depth", START, "LL", CHUNKED, 400,
        (reached("1..7"),), (unreached("8..63", 1 / 16),)),
    Row("hybrid", "one causal layer on top of a window sees everything", LATER, "LG", HYBRID, 400,
        (reached("1..58"),), (unreached("-5..-1", 1 / 16),)),
    Row("prefix", "inside a prefix every token sees the others, also ahead", AHEAD, "L", PREFIX, 300,
        (reached("-7..-1"),)),
    Row("prefix-causal", "the control: without a prefix nothing ahead is seen", AHEAD, "L", CAUSAL, 200,
        (), (unreached("-7..-1", 1 / 16),)),
    Row("delay-strided", "a stride of 8 finds the token 16 back in one hop", Delay(delay=16), "L", STRIDED, 400,
        (reached("delayed"),)),
    Row("delay-window", "the control: a window of 8 does not", Delay(delay=16), "L", WINDOW, 200,
        (), (unreached("delayed", 1 / 16),)),
    Row("mqar-mha", "recall of four pairs with a key head per query head", Mqar(), "LG", NARROW_HYBRID, 500,
        (reached("asked"),), heads=4, kv_heads=4, batch=64, keep=True),
    Row("mqar-gqa", "the same with two query heads per key head", Mqar(), "LG", NARROW_HYBRID, 500,
        (reached("asked"),), heads=4, kv_heads=2, batch=64, keep=True),
    Row("mqar-mqa", "the same with one key head for all", Mqar(), "LG", NARROW_HYBRID, 500,
        (reached("asked"),), heads=4, kv_heads=1, batch=64, keep=True),
    Row("recall-hybrid", "a local layer pairs keys with values, a causal layer looks them up at any distance",
        Recall(), "LG", HYBRID, 600, (reached("near,far"),)),
    Row("recall-window", "two windows recall what is near; what is far is a guess", Recall(), "LL", WINDOW, 900,
        (reached("near"),), (unreached("far", 1 / 8),)),
    Row("backcopy-causal", "a head with nothing to do rests on the first token, and leaves it at a trigger",
        Backcopy(), "L", CAUSAL, 600,
        (reached("trigger"), Band("rest at ordinary", 0.2, 1.0), Band("rest at trigger", 0.0, 0.05)),
        kv_heads=4, mlp=32, rate=6e-3, keep=True),
    Row("backcopy-window", "the control: a window that has lost the first token copies as well, with no rest",
        Backcopy(), "L", WINDOW, 600,
        (reached("trigger"),), (Band("rest at ordinary,rest at trigger", 0.0, 0.0),), kv_heads=4, mlp=32, rate=6e-3),
    Row("text-causal", "real text below the byte bigram", Text(), "LL", CAUSAL, 400,
        (BELOW_BIGRAM,)),
    Row("text-window", "real text below the byte bigram", Text(), "LL", {"L": "window(16)"}, 400,
        (BELOW_BIGRAM,)),
    Row("text-sink", "real text below the byte bigram", Text(), "LL", {"L": "window(16) | sink(2)"}, 400,
        (BELOW_BIGRAM,)),
    Row("text-strided", "real text below the byte bigram", Text(), "LL", {"L": "window(16) | strided(8)"}, 400,
        (BELOW_BIGRAM,)),
    Row("text-hybrid", "real text below the byte bigram", Text(), "LG", {"L": "window(16)", "G": "causal()"}, 400,
        (BELOW_BIGRAM,)),
)

FULL = (
    Row("window-3", "three layers of window(4) see 9 tokens back", SHORT, "LLL", NARROW, 600,
        (reached("1..9"),), (unreached("10..31", 1 / 16),)),
    Row("window-4", "four layers of window(4) see 12 tokens back", SHORT, "LLLL", NARROW, 800,
        (reached("1..12"),), (unreached("13..31", 1 / 16),)),
    Row("sink-5-2", "two layers: token 5 is handed on through the window, 2 * (8 - 1) = 14 tokens far",
        LATER, "LL", SINK, 800, (reached("1..14", 0.9),), (unreached("-5..-1,15..58", 1 / 16),)),
    Row("delay-causal", "everything is visible, so is the token 16 back", Delay(delay=16), "L", CAUSAL, 600,
        (reached("delayed"),)),
    Row("delay-12-stride", "12 is in another residue class than 8, whatever the depth", Delay(delay=12), "LL",
        STRIDE, 300, (), (unreached("delayed", 1 / 16),)),
    Row("delay-12-strided", "window and stride together get to 12 = 8 + 4", Delay(delay=12), "LL", STRIDED, 600,
        (reached("delayed"),)),
    Row("recall-causal", "two causal layers recall too, the slowest to start", Recall(), "LL", CAUSAL, 1200,
        (reached("near,far"),)),
    Row("recall-sink", "a sink brings back the first pair only: 0.28 of the far keys, guesses included", Recall(), "LL",
        {"L": "window(8) | sink(2)"}, 600, (reached("near"),), (Band("far", 0.0, 0.35),)),
    Row("repeat-hybrid", "rounds of a random period: induction", Repeat(), "LG", HYBRID, 1200,
        (reached("repeated", 0.9),)),
    Row("repeat-window", "the control: rounds of 16 and more lie beyond the 14 tokens that two windows reach",
        Repeat(period=32), "LL", WINDOW, 400, (), (unreached("repeated", 1 / 64),)),
    Row("flipflop-causal", "carries a bit over any gap", FlipFlop(), "LL", CAUSAL, 800,
        (reached("near,between,far", 0.97),)),
    Row("flipflop-window", "carries a bit over 14 tokens and no more", FlipFlop(), "LL", WINDOW, 800,
        (reached("near", 0.97),), (unreached("far", 1 / 2),)),
    Row("selective-causal", "picks four tokens out of 28 slots in order", SelectiveCopy(), "LL", CAUSAL, 2500,
        (reached("copied"),)),
)

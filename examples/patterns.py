"""Patterns are values: write them, join them, count them, draw them, and see what a layer of them costs.

python examples/patterns.py                             pictures in the terminal
python examples/patterns.py "strided(4) | window(4)"    any pattern
python examples/patterns.py --svg pictures              also as SVG files in a folder
"""

import argparse
import pathlib

import attnjax as aj
from attnjax import show

PATTERNS = "causal()", "window(4)", "window(4) | sink(1)", "strided(4) | window(4)", "chunked(8)", "band(2, 2)"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", default=PATTERNS, help="patterns in the pattern language")
    parser.add_argument("--length", type=int, default=16, help="tokens to draw (default: %(default)s)")
    parser.add_argument("--svg", type=pathlib.Path, metavar="FOLDER", help="write an SVG of each here")
    options = parser.parse_args()

    for text in options.patterns:
        pattern = aj.parse(text)
        print(show.text(pattern, options.length), end="\n\n")
        if options.svg:
            options.svg.mkdir(parents=True, exist_ok=True)
            name = text.replace(" | ", "-or-").replace(" & ", "-and-").replace("~", "not-")
            print("written:", show.svg(pattern, options.length, options.svg / f"{name}.svg"), end="\n\n")

    # A window of 4 with the first token kept is `|`, the same without the first token is `& ~`.
    window, sink = aj.Window(4), aj.Sink(1)
    assert (window | sink).count(16) == 70 and (window & ~sink).count(16) == 54
    assert aj.parse(str(window | sink)) == window | sink

    # The counts are exact at any length: nothing of size T x T is ever made.
    llama2_7b = {"num_heads": 32, "head_dim": 128}
    for pattern in (aj.Causal(), aj.Window(4096) | aj.Sink(1)):
        cost = aj.cost(pattern, 131072, **llama2_7b)
        scores, flops = f"{pattern.count(131072):,}", f"{cost.flops / 1e12:,.1f}"
        print(f"{pattern} at 128k tokens: {scores} scores a head, {flops} TFLOP a layer")


if __name__ == "__main__":
    main()

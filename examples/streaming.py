"""Streams without end (Xiao et al. 2023, "StreamingLLM"), on a real model: what a window loses, and what one kept token
brings back.

    make smollm2
    python examples/streaming.py --tokens 20000

768 tokens under four patterns in one pass each, and a stream of any length through caches of 64 slots.
"""

import argparse
import functools
import pathlib
import pydoc_data.topics
import time

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from matplotlib.figure import Figure

from attnjax import models

ROOT = pathlib.Path(__file__).parents[1]
FILE = ROOT / "build/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
PATTERNS = "causal()", "window(64)", "window(63) | sink(1)", "window(60) | sink(4)"
STREAMED = "window(64)", "window(60) | sink(4)"
SKIPPED = 128  # the first tokens, of which a window of 64 has lost nothing yet, do not count


@functools.partial(jax.jit, static_argnames="graph")
def whole(graph, state, tokens):
    """-log p of every token after the first, in one pass."""
    return losses(nnx.merge(graph, state)(tokens[None, :-1])[0], tokens[1:])


@functools.partial(jax.jit, static_argnames="graph", donate_argnames="caches")
def step(graph, state, tokens, following, caches):
    """-log p of what follows each token of a chunk, and the caches behind it."""
    logits, caches = nnx.merge(graph, state)(tokens[None], cache=caches)
    return losses(logits[0], following), caches


def losses(logits, tokens):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, None], axis=1)[:, 0]


def stream(model, tokens, chunk):
    """(losses, seconds of each chunk, bytes of the caches) of a text of any length."""
    caches = model.init_cache(batch=1, max_length=len(tokens), positions="cache")
    graph, state = nnx.split(model)
    found, seconds = [], []
    for first in range(0, len(tokens) - chunk, chunk):
        start = time.perf_counter()
        loss, caches = step(graph, state, *(tokens[at : at + chunk] for at in (first, first + 1)), caches)
        found.append(np.asarray(loss))
        seconds.append(time.perf_counter() - start)
    return np.concatenate(found), np.array(seconds), caches.nbytes


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=600, help="length of the stream")
    parser.add_argument("--chunk", type=int, default=16, help="tokens for each step of the stream")
    parser.add_argument("--model", type=pathlib.Path, default=FILE)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/streaming.png")
    args = parser.parse_args(words)
    if not args.model.exists():
        parser.error(f"{args.model} is not there; fetch it with: make smollm2")
    text = "\n\n".join(pydoc_data.topics.topics.values())
    tokens = np.array(models.tokenizer(args.model).encode(text).ids[: args.tokens + args.chunk + 1], np.int32)
    short = np.load(ROOT / "tests/golden/smollm2_golden.npz")["token_ids"]
    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    print(f"{'pattern':<22}perplexity of tokens after position {SKIPPED}")
    for pattern in PATTERNS:
        model = models.load(args.model, pattern)
        loss = np.asarray(whole(*nnx.split(model), short))
        print(f"{pattern:<22}{np.exp(loss[SKIPPED:].mean()):.2f}", flush=True)
        left.plot(np.exp(np.convolve(loss, np.ones(64) / 64, "valid")), label=pattern)
        if pattern not in STREAMED:
            continue
        loss, seconds, size = stream(model, tokens, args.chunk)
        fifths = np.array_split(seconds[1:] / args.chunk, 5)  # the first step compiles
        perplexity, times = np.exp(loss[SKIPPED:].mean()), " ".join(f"{1e3 * np.median(fifth):.1f}" for fifth in fifths)
        print(f"  a stream of {loss.size} tokens: perplexity {perplexity:.2f}, {size / 2**20:.1f} MiB of cache,")
        print(f"  ms a token, a fifth at a time: {times}", flush=True)
        width = min(256, loss.size)
        right.plot(np.exp(np.convolve(loss, np.ones(width) / width, "valid")), label=pattern, linewidth=1)
    for axes, title in ((left, "one pass"), (right, "a stream through 64 slots")):
        axes.set(title=title, xlabel="token", ylabel="perplexity, moving mean", yscale="log")
        axes.legend()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(args.out, dpi=120)
    print(args.out)


if __name__ == "__main__":
    main()

"""How fast a published model reads a prompt and writes on, against transformers and torch on the same weights.

    make smollm2
    python benchmarks/decode.py --torch-python other/bin/python

Both sides get the weights of the GGUF file in float32 (the other one as a Hugging Face folder written for it), and
both write greedily with a cache. What they write is compared before anything is timed; a difference stops the run.
Each round times every side once, in turn, on a new prompt; a ratio is (their seconds / attnjax's seconds) of one
round, and the figure is the median over the rounds: above 1 means that attnjax is faster. `prefill` is the time to
the first token behind a prompt, `decode` that of each further one, through `models.generate` here and through
`model(...)` with a `DynamicCache` there. The last line is one JSON document. A missed target is reported, not an error.
"""

import argparse
import json
import pathlib
import tempfile
import time

import attend
import child
import numpy as np
import safetensors.numpy
from contest import PAUSE, Mismatch, spread

from attnjax import models
from attnjax.models.gguf_file import open_gguf

FILE = pathlib.Path(__file__).parents[1] / "build/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
PROGRAM = pathlib.Path(__file__).with_name("transformers_child.py")
BATCHES = 1, 8
CHECK_SEED = 10_000


def arguments(words):
    """The command line."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--model", type=pathlib.Path, default=FILE, help="a GGUF file; SmolLM2 by default")
    parser.add_argument("--prompt", type=int, default=512, metavar="TOKENS")
    parser.add_argument("--new", type=int, default=32, metavar="TOKENS")
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--torch-python", help="an interpreter that has torch and transformers; this one by default")
    args = parser.parse_args(words)
    for name, least in (("prompt", 1), ("new", 2), ("rounds", 1)):
        if getattr(args, name) < least:
            parser.error(f"--{name} {getattr(args, name)}: at least {least} is needed")
    return args


def published_folder(file, folder):
    """The GGUF file as a Hugging Face folder in float32."""
    source = open_gguf(file)
    config = source.config | {"architectures": ["LlamaForCausalLM"], "torch_dtype": "float32"}
    pathlib.Path(folder, "config.json").write_text(json.dumps(config))
    weights = {name: np.ascontiguousarray(source.read(name)) for name in source.shapes}
    safetensors.numpy.save_file(weights, pathlib.Path(folder, "model.safetensors"), {"format": "pt"})


def prompt(seed, batch, length, vocab_size):
    """Token ids [batch, length], the same on both sides."""
    return np.random.default_rng([seed, batch]).integers(0, vocab_size, (batch, length))


class Ours:
    """`models.generate`."""

    name = "attnjax"

    def __init__(self, file):
        self.model = models.load(file)

    def write(self, tokens, new):
        """(tokens written, their log-probabilities, seconds to the first one, seconds of each further one)."""
        times = [time.perf_counter()]
        found = models.generate(self.model, tokens, max_new=new, on_token=lambda _: times.append(time.perf_counter()))
        first, rest = times[1] - times[0], times[-1] - times[1]
        return np.asarray(found.tokens), np.asarray(found.logprobs), first, rest / (new - 1)


class Theirs:
    """transformers in a process of its own."""

    name = "transformers"

    def __init__(self, process, folder):
        self.process = process
        process.ask({"do": "load", "folder": str(folder)})

    def write(self, tokens, new):
        """As Ours.write."""
        answer = self.process.ask({"do": "write", "tokens": tokens.tolist(), "new": new})
        return np.array(answer["tokens"]), np.array(answer["logprobs"]), answer["prefill"], answer["decode"]


def check(ours, theirs, tokens, new):
    """That both write the same; also runs every program once.

    Raises:
        Mismatch: if not.
    """
    (a, p, *_), (b, r, *_) = ours.write(tokens, new), theirs.write(tokens, new)
    same = np.cumprod(a == b, axis=1).astype(bool)  # behind the first difference the two read different texts
    error = float(np.abs(p - r)[same].max())
    if same.mean() < 0.5 or error > 1e-3:
        raise Mismatch(f"{same.mean():.0%} of the tokens agree, log-probabilities differ by {error:.1e}; nothing timed")
    return {"agree": float(same.mean()), "error": error}


def measure(sides, batch, args):
    """One batch size as a plain dictionary."""
    vocab = sides[0].model.config.vocab_size
    agreement = check(*sides, prompt(CHECK_SEED, batch, args.prompt, vocab), args.new)
    times = {side.name: [] for side in sides}
    for number in range(args.rounds):
        tokens = prompt(number, batch, args.prompt, vocab)
        for side in sides[:: 1 if number % 2 else -1]:
            time.sleep(PAUSE)
            times[side.name].append(side.write(tokens, args.new)[2:])
    rows = []
    for which, what in enumerate(("prefill", "decode")):
        mine, other = ([pair[which] for pair in times[side.name]] for side in sides)
        ratios = spread([b / a for a, b in zip(mine, other, strict=True)])
        rows.append({"row": f"{what}-{batch}", "attnjax": spread(mine), "transformers": spread(other), "ratio": ratios})
    return [row | agreement | {"at_least": 1.0} for row in rows]


def text(row):
    """One line of the table."""
    ours, them, ratio = row["attnjax"]["median"], row["transformers"]["median"], row["ratio"]
    low, high = ratio["min"], ratio["max"]
    told = "" if ratio["median"] >= row["at_least"] else "   MISSED"
    times = f"{1e3 * ours:9.1f} {1e3 * them:12.1f}"
    return f"{row['row']:<12} {times} {ratio['median']:8.2f}  ({low:.2f} to {high:.2f}){told}"


def main(words=None):
    """The table, then the JSON line."""
    args = arguments(words)
    threads = attend.num_threads()
    torch = attend.torch_child(args.torch_python, threads, PROGRAM)
    with tempfile.TemporaryDirectory() as folder, child.closing(torch):
        if torch is None:
            raise SystemExit("torch was not found; name an interpreter that has it with --torch-python")
        published_folder(args.model, folder)
        document = {"about": attend.about(threads, torch) | {"transformers": torch.about["transformers"]}}
        print(" ".join(f"{name}={value}" for name, value in document["about"].items()))
        sides = [Ours(args.model), Theirs(torch, folder)]
        print(f"{'ms':<12} {'attnjax':>9} {'transformers':>12} {'ratio':>8}")
        document["rows"] = []
        for batch in args.batches:
            rows = measure(sides, batch, args)
            print("\n".join(map(text, rows)), flush=True)
            document["rows"] += rows
    print(json.dumps(document))


if __name__ == "__main__":
    main()

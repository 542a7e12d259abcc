"""The torch side: reads one JSON request a line on standard input, answers one JSON line on standard output.

    {"do": "about"}                                                  -> versions and threads
    {"do": "run", "peer": "flex", "work": {...}, "seed": 1, "calls": 3}  -> {"seconds": of one call}
    {"do": "run", ..., "save": "file.npz"}                           -> the same, results written to the file

It runs in a process of its own so that two runtimes' thread pools never share one, and under whichever
interpreter has torch. Arrays are made from the seed on both sides. [B, T, N, H] becomes torch's own
[B, N, T, H] outside the timed part.
"""

import contextlib
import json
import os
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from work import Work, numbers, rule

MASK_LIMIT = 8192  # SDPA takes any pattern but the causal one as a T x T array


class Unable(Exception):
    """The peer has no way to run this work; the text says why."""


def sdpa(work):
    """scaled_dot_product_attention: is_causal where that is the pattern, a bool array elsewhere."""
    options = {"is_causal": True}
    if work.pattern != "causal()":
        if work.T > MASK_LIMIT:
            raise Unable(f"SDPA knows this pattern only as a {work.T} x {work.T} array")
        at = torch.arange(work.T)
        options = {"attn_mask": rule(work.pattern)(at[:, None], at[None, :])}
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=work.group > 1, **options)


def flex(work):
    """flex_attention under torch.compile, with a BlockMask made once."""
    if work.direction == "backward":
        raise Unable("FlexAttention has no backward on a CPU")
    torch._dynamo.reset()
    visible = rule(work.pattern)
    make_blocks = torch.compile(create_block_mask)
    block_mask = make_blocks(lambda b, h, i, j: visible(i, j), None, None, work.T, work.T, device="cpu")
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda q, k, v: compiled(q, k, v, block_mask=block_mask, enable_gqa=work.group > 1)


PEERS = {"sdpa": sdpa, "flex": flex}


class Runner:
    """Keeps the one program in use, since a block mask and its kernel belong to one work."""

    def __init__(self):
        self.made = {}

    def program(self, peer, work):
        if self.made.get("work") != work:
            self.made = {"work": work}
        if peer not in self.made:
            self.made[peer] = PEERS[peer](work)
        return self.made[peer]

    def run(self, peer, work, seed, calls, save=None):
        program = self.program(peer, work)
        dtype = getattr(torch, work.dtype)
        arrays = [torch.from_numpy(x).transpose(1, 2).to(dtype).contiguous() for x in numbers(work, seed)]
        q, k, v = arrays[:3]
        backward = work.direction == "backward"
        for x in (q, k, v):
            x.requires_grad_(backward)
        with contextlib.nullcontext() if backward else torch.inference_mode():
            start = 0.0
            for n in range(calls + 1):
                if n == 1:  # the first call is not counted: it wakes the threads
                    start = time.perf_counter()
                q.grad = k.grad = v.grad = None
                out = program(q, k, v)
                if backward:
                    out.backward(arrays[3])
            seconds = (time.perf_counter() - start) / calls
        if save:
            results = [out, q.grad, k.grad, v.grad] if backward else [out]
            np.savez(save, *[x.detach().transpose(1, 2).float().numpy() for x in results])
        return seconds


def answer(runner, request):
    """One request, one answer."""
    if request["do"] == "about":
        return {"torch": torch.__version__, "threads": torch.get_num_threads(), "python": sys.version.split()[0]}
    work = Work(**request["work"])
    try:
        return {"seconds": runner.run(request["peer"], work, request["seed"], request["calls"], request.get("save"))}
    except Unable as error:
        return {"unable": str(error)}


def main():
    """Answers until standard input closes; what torch prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(int(sys.argv[1]))
    runner = Runner()
    for line in sys.stdin:
        print(json.dumps(answer(runner, json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()

"""The transformers side of decode.py: reads one JSON request a line, answers one JSON line.

    {"do": "about"}                                      -> versions and threads
    {"do": "load", "folder": "..."}                      -> {}
    {"do": "write", "tokens": [[...]], "new": 32}        -> tokens, log-probabilities, seconds

It runs under whichever interpreter has torch and transformers, so that two runtimes' thread pools never share a
process.
"""

import json
import os
import sys
import time

import torch
import transformers


class Runner:
    """Keeps the one model."""

    def about(self):
        """Versions and threads."""
        versions = {"torch": torch.__version__, "transformers": transformers.__version__}
        return versions | {"threads": torch.get_num_threads(), "python": sys.version.split()[0]}

    def load(self, folder):
        """The model of a folder, in float32 with its fastest attention."""
        load = transformers.AutoModelForCausalLM.from_pretrained
        self.model = load(folder, dtype=torch.float32, attn_implementation="sdpa").eval()
        return {}

    @torch.inference_mode()
    def write(self, tokens, new):
        """Greedy tokens behind each prompt, one step after the other, without `generate` and its extra work."""
        start = time.perf_counter()
        cache = transformers.DynamicCache(config=self.model.config)
        chunk, found, logprobs, first = torch.tensor(tokens), [], [], 0.0
        for step in range(new):
            logits = self.model(chunk, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1]
            chunk = logits.argmax(-1, keepdim=True)
            logprobs.append(torch.log_softmax(logits, -1).gather(1, chunk))
            found.append(chunk)
            if step == 0:
                first = time.perf_counter() - start
        rest = (time.perf_counter() - start - first) / (new - 1)
        tokens, logprobs = (torch.cat(parts, 1).tolist() for parts in (found, logprobs))
        return {"tokens": tokens, "logprobs": logprobs, "prefill": first, "decode": rest}


def main():
    """Answers until standard input closes; what others print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(int(sys.argv[1]))
    runner = Runner()
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(getattr(runner, request.pop("do"))(**request)), file=answers, flush=True)


if __name__ == "__main__":
    main()

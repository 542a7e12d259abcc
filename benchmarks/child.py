"""The parent's end of the pipe to the process that holds torch."""

import contextlib
import dataclasses
import json
import pathlib
import subprocess
import tempfile

import numpy as np
from sides import Unable

PROGRAM = pathlib.Path(__file__).with_name("torch_child.py")


class Child:
    """One process for the whole run: asked over pipes, one JSON line each way."""

    def __init__(self, python, threads, program=PROGRAM):
        self.process = subprocess.Popen(
            [python, str(program), str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.about = self.ask({"do": "about"})

    def ask(self, request):
        """The answer to one request.

        Raises:
            SystemExit: if the process ended instead of answering; its own words are on standard error.
        """
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the torch process ended with status {self.process.wait()} on {request}")
        return json.loads(line)

    def close(self):
        """Lets the process end by itself."""
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()


@contextlib.contextmanager
def closing(child):
    """Closes the child at the end, whatever happened; None stays None."""
    try:
        yield child
    finally:
        if child is not None:
            child.close()


class ChildSide:
    """One peer of the torch process at one work; the same two questions as every other side."""

    def __init__(self, name, child, peer, work):
        self.name, self.child, self.peer, self.work = name, child, peer, work

    def ask(self, **more):
        work = dataclasses.asdict(self.work)
        answer = self.child.ask({"do": "run", "peer": self.peer, "work": work, **more})
        if "unable" in answer:
            raise Unable(answer["unable"])
        return answer["seconds"]

    def result(self, seed):
        """Output, and with a backward the three gradients, as NumPy arrays."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "results.npz"
            self.ask(seed=seed, calls=1, save=str(file))
            with np.load(file) as results:
                return [results[name] for name in results.files]

    def seconds(self, seed, calls):
        """Seconds of one call, the mean of several."""
        return self.ask(seed=seed, calls=calls)

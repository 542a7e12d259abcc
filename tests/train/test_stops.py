"""Ctrl-C and SIGTERM: at once, whatever is computed, with what is done kept and no process left behind.

Nothing here is timed: what is stopped would never end by itself.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.train.pairs import HYBRID
from train import resume, stops

ROOT = pathlib.Path(__file__).parents[2]
DEADLINE = 600  # seconds; only a fault gets there


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """One cache of what XLA compiles for all processes here."""
    return tmp_path_factory.mktemp("compiled")


class Process:
    """A process in a group of its own, which is ended with the test."""

    def __init__(self, compiled, *arguments):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_COMPILATION_CACHE_DIR": str(compiled)}
        # The tests may themselves be started to ignore Ctrl-C, as a shell's background jobs are, and that is inherited.
        before = {number: signal.signal(number, signal.SIG_DFL) for number in stops.SIGNALS}
        try:
            self.popen = subprocess.Popen([sys.executable, *map(str, arguments)], cwd=ROOT, env=environment, text=True,
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)  # fmt: skip
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        self.alarm = threading.Timer(DEADLINE, self.kill)
        self.alarm.start()

    def until(self, text):
        """Reads up to the line with a text in it; returns that line."""
        for line in self.popen.stdout:
            if text in line:
                return line
        raise AssertionError(f"it ended before it said {text!r}: {self.popen.stderr.read()}")

    def send(self, number, group):
        (os.killpg if group else os.kill)(self.popen.pid, number)

    def workers(self):
        """The processes of the group that are multiprocessing's workers."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if os.getpgid(int(path.parent.name)) == self.popen.pid and b"spawn_main" in path.read_bytes():
                    found.append(int(path.parent.name))
            except OSError:  # it has ended meanwhile
                pass
        return found

    def ended(self):
        """(status, rest of stdout, stderr), once no process of the group is left."""
        out, err = self.popen.communicate()
        while True:
            try:
                os.killpg(self.popen.pid, 0)
            except ProcessLookupError:
                break
            time.sleep(0.02)
        self.alarm.cancel()
        return self.popen.returncode, out, err

    def kill(self):
        try:
            os.killpg(self.popen.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


IN_COMPILED_CODE = """
import hashlib, sys
from train import stops
with stops.listening(lambda: "last words"):
    print("begun", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # hours in which Python runs no instruction
"""


@pytest.mark.parametrize("number", stops.SIGNALS)
def test_a_process_in_compiled_code_ends(tmp_path, number):
    process = Process(tmp_path, "-c", IN_COMPILED_CODE)
    process.until("begun")
    process.send(number, group=False)
    assert process.ended() == (130, "", "last words\n")


DEFERRED = """
import time
from train import stops
with stops.listening(lambda: "last words"):
    with stops.deferred():
        print("begun", flush=True)
        stops.asked.wait()
        print("asked", flush=True)
        while True:
            time.sleep(1)
"""


def test_a_deferred_signal_is_asked_for_and_the_second_ends_the_process(tmp_path):
    process = Process(tmp_path, "-c", DEFERRED)
    process.until("begun")
    process.send(signal.SIGINT, group=True)
    process.until("asked")
    process.send(signal.SIGINT, group=True)
    assert process.ended() == (130, "", "last words\n")


def test_handlers_are_put_back_and_what_is_ignored_stays_so():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        own = signal.getsignal(signal.SIGTERM)
        with stops.listening(str):
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN and signal.getsignal(signal.SIGTERM) is not own
        assert signal.getsignal(signal.SIGTERM) is own
        assert signal.set_wakeup_fd(-1) == -1
    finally:
        signal.signal(signal.SIGINT, before)


def test_outside_the_main_thread_nothing_is_changed():
    seen = []

    def listen():
        with stops.listening(str):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]


# A row that is done soon, and one that never is: its hidden band cannot hold it up, its seen one never holds.
ROWS = """
import pathlib, sys
from train import check, stops
from train.bands import Band, reached
from train.rows import Row
from train.tasks import Reach

soon = Row("soon", "", Reach(length=8), "L", {"L": "window(3)"}, 40, (), (Band("3..7", 0, 1),))
endless = Row("endless", "", Reach(length=8), "L", {"L": "window(3)"}, 10**9, (Band("1", 2, 3),), keep=True)
check.host.threads = lambda: 2
with stops.listening(lambda: "last words"):
    status = check.check([soon, endless], pathlib.Path(sys.argv[1]))
sys.exit(status)
"""


def checked(out):
    record = json.loads((out / "report.json").read_text())
    return [row["name"] for row in record["rows"]], record["interrupted"], record["asked"]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "group"), [
    (signal.SIGINT, True), (signal.SIGINT, False), (signal.SIGTERM, True), (signal.SIGTERM, False),
])  # fmt: skip
def test_a_check_that_is_stopped_keeps_the_rows_that_are_done(tmp_path, compiled, number, group):
    process = Process(compiled, "-c", ROWS, tmp_path)
    line = process.until("1 of 2")
    assert line.startswith("soon ") and line.endswith(" left\n") and "about " in line
    process.send(number, group)
    status, said, err = process.ended()
    assert (status, err) == (130, "")
    said = said.splitlines()[-1]
    assert said.startswith("stopped: 1 of 2 rows done; 1 of 1 rows inside their bands, ") and "report.md" in said
    assert checked(tmp_path) == (["soon"], True, 2)
    assert "**Interrupted**: 1 of 2 rows were done." in (tmp_path / "report.md").read_text()


@pytest.mark.slow
def test_a_check_that_is_stopped_before_a_row_is_done_leaves_an_earlier_report_alone(tmp_path, compiled):
    (tmp_path / "report.md").write_text("earlier")
    process = Process(compiled, "-c", ROWS, tmp_path)
    process.until("pattern")
    process.send(signal.SIGINT, group=True)
    assert process.ended() == (130, "stopped: 0 of 2 rows done\n", "")
    assert (tmp_path / "report.md").read_text() == "earlier" and len(list(tmp_path.iterdir())) == 1


@pytest.mark.slow
def test_no_worker_outlives_a_check_that_is_killed(tmp_path, compiled):
    process = Process(compiled, "-c", ROWS, tmp_path)
    process.until("1 of 2")
    assert process.workers()
    process.send(signal.SIGKILL, group=False)
    assert process.ended()[0] == -signal.SIGKILL


@pytest.mark.slow
def test_a_worker_that_ends_by_itself_ends_the_check_with_what_is_done(tmp_path, compiled):
    process = Process(compiled, "-c", ROWS, tmp_path)
    process.until("1 of 2")
    for worker in process.workers():
        os.kill(worker, signal.SIGKILL)
    status, said, err = process.ended()
    assert status == 1 and "stopped: 1 of 2 rows done" in said and checked(tmp_path) == (["soon"], True, 2)
    assert "ChildProcessError: the process that trained endless ended by itself (status -9)" in err


@pytest.mark.slow
@pytest.mark.parametrize(("number", "group", "moment", "words"), [
    (signal.SIGINT, True, "byte counts", "goes on from its start, as no checkpoint was written yet"),
    (signal.SIGTERM, False, "step     4/", "goes on from the newest checkpoint"),
])  # fmt: skip
def test_a_run_that_is_stopped_can_be_resumed(tmp_path, compiled, number, group, moment, words):
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 60)
    changes = ["model.layout=L", "model.num_layers=1", "model.theta=1e4", "model.d_model=8", "model.num_heads=1",
               "model.num_kv_heads=1", "data.length=8", "data.batch=4", "optim.steps=2000000000", "run.log_every=2",
               "run.save_every=2", f"data.path={text}"]  # fmt: skip
    out = tmp_path / "run"
    process = Process(compiled, "-m", "train", "run", HYBRID, "--set", *changes, "--out", out)
    process.until(moment)
    process.send(number, group)
    status, _, err = process.ended()
    assert (status, err) == (130, f"stopped; python -m train resume {out} {words}\n")
    assert (resume.plan(out).since.step > 0) == (moment != "byte counts")


@pytest.mark.slow
def test_a_command_that_is_stopped_at_its_set_up_has_written_nothing(tmp_path):
    script = "import sys; from train.__main__ import main; from train import stops, config\n"
    script += "def read(*_):\n    print('begun', flush=True)\n    while True: stops.asked.wait(1)\n"
    script += "config.read = read\nmain(['run', 'x.toml', '--out', sys.argv[1]])\n"
    process = Process(tmp_path / "compiled", "-c", script, tmp_path / "run")
    process.until("begun")
    process.send(signal.SIGINT, group=True)
    assert process.ended() == (130, "", "stopped\n") and not (tmp_path / "run").exists()

"""Ctrl-C and SIGTERM: a KeyboardInterrupt where Python runs, the end of the process where compiled code does not."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable

SIGNALS = signal.SIGINT, signal.SIGTERM
STATUS = 130  # what a shell calls the end by Ctrl-C
GRACE = 1.0  # seconds that compiled code has to come back to Python


@contextlib.contextmanager
def listening(words: Callable[[], str]):
    """Raises KeyboardInterrupt at the first signal; ends the process at the second, or if the first is not heard.

    Python hears a signal between two of its own instructions, so not while XLA compiles. Leaving the process there is
    safe for whatever survives a kill. A signal that the process was started to ignore stays ignored.

    Args:
        words: what is said when the process is left.
    """
    heard = threading.Event()

    def hear(*_) -> None:
        if not heard.is_set():
            heard.set()
            raise KeyboardInterrupt

    kept = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    if threading.current_thread() is not threading.main_thread() or not kept:
        yield
        return
    inlet, outlet = os.pipe()
    os.set_blocking(outlet, False)
    wakeup = signal.set_wakeup_fd(outlet, warn_on_full_buffer=False)
    before = {number: signal.signal(number, hear) for number in kept}
    watcher = threading.Thread(target=_watch, args=(inlet, heard, words), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)
        os.close(outlet)
        watcher.join()
        os.close(inlet)


def _watch(inlet: int, heard: threading.Event, words: Callable[[], str]) -> None:
    """Reads the number of every signal, which the system writes at once, whatever the main thread does."""
    signals = 0
    while number := os.read(inlet, 1):
        signals += number[0] in SIGNALS
        if signals > 1 or signals and not heard.wait(GRACE):
            print(words(), file=sys.stderr, flush=True)
            os._exit(STATUS)

"""Ctrl-C and SIGTERM end a command at once, whatever it computes; one that wants to save what is done says so."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable

SIGNALS = signal.SIGINT, signal.SIGTERM
STATUS = 130  # what a shell calls the end by Ctrl-C

asked = threading.Event()  # whether a signal came while it was deferred
_polite = threading.Event()


@contextlib.contextmanager
def listening(words: Callable[[], str]):
    """Leaves the process at a signal, after a line for people.

    A KeyboardInterrupt would not do: Python raises none while XLA compiles, and one that falls into a callback of the
    garbage collector is lost. What has to survive a kill survives this as well. A signal that the process was started
    to ignore stays ignored.

    Args:
        words: what is said then.
    """
    kept = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    if threading.current_thread() is not threading.main_thread() or not kept:
        yield
        return
    inlet, outlet = os.pipe()
    os.set_blocking(outlet, False)
    # The system itself writes the number of a signal that has a handler, at once.
    wakeup = signal.set_wakeup_fd(outlet, warn_on_full_buffer=False)
    before = {number: signal.signal(number, lambda *_: None) for number in kept}
    watcher = threading.Thread(target=_watch, args=(inlet, words), daemon=True)
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


@contextlib.contextmanager
def deferred():
    """Inside, the first signal only sets `asked`, which has to be looked at; the second ends the process."""
    asked.clear()
    _polite.set()
    try:
        yield
    finally:
        _polite.clear()


def _watch(inlet: int, words: Callable[[], str]) -> None:
    while number := os.read(inlet, 1):
        if number[0] not in SIGNALS:
            continue
        if _polite.is_set() and not asked.is_set():
            asked.set()
            continue
        cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # a live table has hidden it
        print(f"{cursor}{words()}", file=sys.stderr, flush=True)
        os._exit(STATUS)

"""Ctrl-C, SIGTERM and a closed terminal, all of which end a run the same way: once."""

import signal
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def interrupt_once() -> None:
    """Have the first of these signals raise KeyboardInterrupt and later ones do nothing.

    A second Ctrl-C must not stop the launcher from ending the processes it has started.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        ignore_interrupts()
        raise KeyboardInterrupt

    for number in _SIGNALS:
        # nohup has SIGHUP ignored, and it stays so.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)


def ignore_interrupts() -> None:
    """Let nothing come between this and the end of the run's processes."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)

"""Ctrl-C, SIGTERM and a closed terminal: each of them ends a run, and only the first counts."""

import signal
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def interrupt_once() -> None:
    """Let the first of these signals raise KeyboardInterrupt, and ignore later ones.

    A second Ctrl-C must not stop the launcher while it ends the processes of the run.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        ignore_interrupts()
        raise KeyboardInterrupt

    for number in _SIGNALS:
        # nohup ignores SIGHUP, and that must not change.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)


def ignore_interrupts() -> None:
    """Ignore these signals from now on, so that the run's processes can be ended."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)

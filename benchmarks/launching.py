"""A recipe that a benchmark runs through the launcher, and ends with itself."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from seal import ROOT


@contextlib.contextmanager
def launched(
    conf: Path,
    overrides: Sequence[str],
    environment: Mapping[str, str] | None = None,
    output: IO[bytes] | None = None,
) -> Iterator["subprocess.Popen[bytes]"]:
    """The launcher's process; it has ended, with all of its own, when the block has.

    It has a session of its own, so Ctrl-C reaches the benchmark only. A launcher that is killed
    leaves the service, Ray and vLLM behind, so it gets one SIGTERM and all the time that it takes.
    """
    process = subprocess.Popen(
        [sys.executable, "launcher.py", f"--conf={conf}", "--with-bfcl", "--", *overrides],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()

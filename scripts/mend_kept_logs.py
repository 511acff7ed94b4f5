#!/usr/bin/env python3
r"""Complete copies of a study's logs that an older `scripts/compare.py --keep` made.

    .venv/bin/python scripts/mend_kept_logs.py evidence/tiny

The viewer then shows their rounds and validations; a report made from them stays the same. The
files are changed in place, and a second time changes nothing. Exit code: 0 done, 1 a round's
interface is not known or a log cannot be read, 2 bad command line.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from seal.records.json_lines import BadLine
from seal.study.mending import mend
from seal.validation.log import BadValidationFile

SUCCESS, FAILED = 0, 1


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="the folder that --keep made, e.g. evidence/tiny")
    folder = parser.parse_args(argv).folder
    console = Console(soft_wrap=True, highlight=False, markup=False)
    records = folder / "launcher_record"
    names = sorted(path.name for path in records.iterdir()) if records.is_dir() else []
    if not names:
        parser.error(f"{folder} holds no runs: expected a folder made by compare.py --keep")
    said = []
    for name in names:
        try:
            said += mend(folder, name)
        except (BadLine, BadValidationFile) as error:
            said.append(f"{name}: {error}")
    for sentence in said:
        console.print(sentence, style="red")
    console.print(f"{len(names)} runs of {folder} looked at, {len(said)} complaints")
    return FAILED if said else SUCCESS


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

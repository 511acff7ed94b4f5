"""The evaluation file of a run: the tasks that a validation plays.

In: a parquet file made by scripts/prepare_bfcl.py. Out: an `EvaluationTask` for each rollout.
"""

from dataclasses import dataclass
from pathlib import Path

import pyarrow
import pyarrow.parquet

from seal.validation.log import BadValidationFile

EVALUATION_FILE = "bfcl_eval_400.parquet"
BENCHMARK = "benchmark"
"""The suite of an evaluation file's rows that are BFCL's own."""


@dataclass(frozen=True)
class EvaluationTask:
    """A row of an evaluation file."""

    task_id: str
    category: str
    suite: str
    temperature: float | None
    """None if the row has no temperature of its own."""
    mode: str | None = "eval"
    """"train" for a suite that is shown the learning interface."""


def read_evaluation_file(parquet: Path) -> list[EvaluationTask]:
    """The tasks in the order of the rows; a task with several rollouts occurs as many times.

    Raises:
        BadValidationFile: The file is missing or is no evaluation file.
    """
    if not parquet.is_file():
        raise BadValidationFile(f"--parquet {parquet} is no file; make it: scripts/prepare_bfcl.py")
    try:
        rows = pyarrow.parquet.ParquetFile(parquet).read().to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        reason = str(error).partition("\n")[0]
        raise BadValidationFile(
            f"--parquet {parquet} cannot be read as parquet: {reason}; expected an evaluation file "
            "of scripts/prepare_bfcl.py"
        ) from None
    tasks: list[EvaluationTask] = []
    for number, row in enumerate(rows, 1):
        try:
            info = row["extra_info"]
            named = (info["task_id"], info["category"], info["suite"])
            rollouts = int(row.get("__rollout_n__", 1))
            "".join(named)  # a TypeError unless all are text
        except (KeyError, TypeError, ValueError):
            raise BadValidationFile(
                f"--parquet {parquet}, row {number}: no extra_info with suite, task_id and "
                "category; expected an evaluation file of scripts/prepare_bfcl.py"
            ) from None
        tasks += [EvaluationTask(*named, info.get("temperature"), info.get("mode"))] * rollouts
    return tasks

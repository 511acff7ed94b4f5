"""Everything that a summary of validation logs is made of, read from files.

In: paths from the command line of scripts/stats_validation_bfcl.py. Out: a `Summary`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from seal import ROOT
from seal.records.json_lines import BadLine, read_json_lines
from seal.validation.evaluation_file import read_evaluation_file
from seal.validation.log import BadValidationFile, read_folder
from seal.validation.summary import (
    Expected,
    Results,
    SummaryRow,
    baseline_step,
    complaints,
    limits_reached,
    results_of,
    summarise,
)

DEFECTIVE = ROOT / "data/bfcl_defective_tasks.json"
"""The list of defective tasks, made by scripts/prepare_bfcl.py."""


@dataclass(frozen=True)
class Summary:
    """Everything there is to print."""

    suites: dict[str, dict[str, Expected]]
    """What the logs should hold, by suite and task id."""
    baseline: Results | None
    defective: frozenset[str] | None
    """Evaluated tasks that are defective; None without a list of defective tasks."""
    rows: list[SummaryRow]
    gaps: list[str]
    """Sentences on missing and duplicate tasks."""
    limits: list[str]
    """Sentences on what ended truncated rollouts."""


def read_summary(
    val_dir: Path,
    parquet: Path,
    *,
    bfcl_jsonl: Path | None = None,
    baseline_dir: Path | None = None,
    defective: Path | None = None,
) -> Summary:
    """Read and summarise a run's validations.

    Args:
        val_dir: Folder of the validation logs.
        parquet: The run's evaluation file.
        bfcl_jsonl: BFCL's tasks, which the evaluation file is compared with; None: no check.
        baseline_dir: Logs of the run to compare with; None: no comparison.
        defective: List of defective tasks; None: DEFECTIVE, and if there is no such file, no
            figures without them.

    Raises:
        BadValidationFile: A log or another file cannot be used.
    """
    suites = evaluation_tasks(parquet)
    if bfcl_jsonl:
        check_known(suites, bfcl_jsonl)
    left_out = None
    if defective is None and DEFECTIVE.exists():
        defective = DEFECTIVE
    if defective:
        left_out = defective_tasks(defective) & set().union(*suites.values())
    run = read_folder(val_dir)
    results = results_of(run, suites, str(val_dir))
    gaps = list(complaints(results, suites, str(val_dir)))
    baseline = None
    if baseline_dir:
        baseline = results_of(read_folder(baseline_dir), suites, str(baseline_dir))
        gaps += complaints(baseline, suites, str(baseline_dir))
        steps = next(iter(baseline.values()))
        if all(baseline_step(step, steps) is None for step in next(iter(results.values()))):
            raise BadValidationFile(
                f"--baseline-dir {baseline_dir} has no step of --val-dir {val_dir}; leave in it "
                "only the one log that every step is to be compared with"
            )
    rows = summarise(results, baseline, left_out)
    return Summary(suites, baseline, left_out, rows, gaps, list(limits_reached(run)))


def evaluation_tasks(parquet: Path) -> dict[str, dict[str, Expected]]:
    """The tasks that a validation should hold, by suite and task id.

    Raises:
        BadValidationFile: The file is missing or is no evaluation file.
    """
    suites: dict[str, dict[str, Expected]] = {}
    for task in read_evaluation_file(parquet):
        of_suite = suites.setdefault(task.suite, {})
        earlier = of_suite[task.task_id].rollouts if task.task_id in of_suite else 0
        of_suite[task.task_id] = Expected(task.category, earlier + 1)
    if "train" in suites or not suites:
        raise BadValidationFile(
            f"--parquet {parquet} holds no evaluation tasks; is it for training?"
        )
    return dict(sorted(suites.items()))


def check_known(suites: Mapping[str, Mapping[str, Expected]], path: Path) -> None:
    """Check that multi_turn_processed.jsonl holds every task, in the same category.

    Raises:
        BadValidationFile: It does not, or cannot be read.
    """
    if not path.is_file():
        raise BadValidationFile(
            f"--bfcl-jsonl {path} does not exist; .venv/bin/python scripts/prepare_bfcl.py makes "
            "env_service/environments/bfcl/bfcl_data/multi_turn_processed.jsonl"
        )
    try:
        known = dict(read_json_lines(path, lambda _, line: (line.get("id"), line.get("category"))))
    except BadLine as error:
        raise BadValidationFile(f"--bfcl-jsonl {error}") from None
    for tasks in suites.values():
        for task, expected in tasks.items():
            if known.get(task) != expected.category:
                raise BadValidationFile(
                    f"--bfcl-jsonl {path} has no task {task!r} of category {expected.category!r}, "
                    "as --parquet does; expected the file of scripts/prepare_bfcl.py"
                )


def defective_tasks(path: Path) -> frozenset[str]:
    """Ids in a list of defective tasks.

    Raises:
        BadValidationFile: The file is missing or is no such list.
    """
    try:
        return frozenset(task["task_id"] for task in json.loads(path.read_bytes())["tasks"])
    except OSError as error:
        raise BadValidationFile(f"--defective {path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BadValidationFile(
            f"{path} is no list of defective tasks; expected the JSON object "
            '{"tasks": [{"task_id": "..."}, ...]}'
        ) from None

"""The files of BFCL's tasks: bfcl-eval's own are read, those of the recipes are written.

In: the data folder of an installed bfcl-eval; a file with somebody's split. Out: `Task` values and
a `Split`, or `BadData` that names the file. Files are written all together or not at all.
"""

import contextlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from seal.records.json_lines import BadLine, json_lines, read_json_lines
from seal.records.whole_file import whole_file
from seal.tasks.splits import CATEGORIES, BadData, Split, Task, named_split

TASKS_PER_CATEGORY = 200
NEEDED = {"id": str, "question": list, "involved_classes": list}
NEEDED_OF_REFERENCES = {"id": str, "ground_truth": list}


def bfcl_data(root: Path) -> Path:
    """The data folder of the bfcl-eval that install.sh put into .venv-bfcl.

    Raises:
        BadData: There is none.
    """
    folders = sorted(root.glob(".venv-bfcl/lib/python3*/site-packages/bfcl_eval/data"))
    if not folders:
        raise BadData(
            "no bfcl-eval in .venv-bfcl; run `bash install.sh`, or name the data "
            "folder of an installed bfcl_eval with --bfcl-data"
        )
    return folders[0]


def read_tasks(folder: Path) -> list[Task]:
    """All tasks, in the order of CATEGORIES and of bfcl-eval's files.

    Raises:
        BadData: They are not bfcl-eval's: 200 tasks in each category, of the same scenarios, each
            with a reference.
    """
    tasks = []
    for category in CATEGORIES:
        path = folder / f"BFCL_v4_{category}.json"
        answers = folder / "possible_answer" / path.name
        rows = _rows(path, NEEDED)
        references = {row["id"]: row for row in _rows(answers, NEEDED_OF_REFERENCES)}
        expected = {f"{category}_{scenario}" for scenario in range(TASKS_PER_CATEGORY)}
        counts = Counter(row["id"] for row in rows)
        if len(rows) != TASKS_PER_CATEGORY or counts.keys() != expected:
            odd = [task_id for task_id, times in counts.items() if times > 1]
            odd += sorted(counts.keys() ^ expected)
            raise BadData(
                f"{path} has {len(rows)} tasks, expected {category}_0 to "
                f"{category}_{TASKS_PER_CATEGORY - 1}; missing, doubled or foreign: {odd[0]}"
                + (f" and {len(odd) - 1} more" if odd[1:] else "")
            )
        unanswered = [row["id"] for row in rows if row["id"] not in references]
        if unanswered:
            raise BadData(f"{answers} has no reference for {unanswered[0]}")
        tasks += [
            Task(
                task_id=row["id"],
                category=category,
                question=row["question"],
                involved_classes=row["involved_classes"],
                reference=references[row["id"]]["ground_truth"],
            )
            for row in rows
        ]
    return tasks


def _rows(path: Path, needed: Mapping[str, type]) -> list[dict[str, Any]]:
    def checked(_number: int, row: dict[str, Any]) -> dict[str, Any]:
        for key, kind in needed.items():
            if not isinstance(row.get(key), kind):
                raise BadLine(f"it has no {kind.__name__} {key!r}")
        return row

    try:
        return list(read_json_lines(path, checked))
    except OSError:
        raise BadData(f"{path} does not exist; is --bfcl-data bfcl_eval/data?") from None
    except BadLine as error:
        raise BadData(str(error)) from None


def read_split(path: Path, tasks: Iterable[Task]) -> Split:
    """The split that a file describes.

    Raises:
        BadData: It describes none; the message names the file.
    """
    try:
        return named_split(json.loads(path.read_bytes()), tasks)
    except OSError as error:
        raise BadData(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise BadData(f"{path} is not JSON: {error}") from error
    except BadData as error:
        raise BadData(f"{path}: {error}") from error


def processed_lines(tasks: Iterable[Task]) -> bytes:
    """The content of a file that has every task with its reference, a line each."""
    return json_lines(
        {
            "id": task.task_id,
            "category": task.category,
            "question": task.question,
            "involved_classes": task.involved_classes,
            "ground_truth": task.reference,
        }
        for task in tasks
    ).encode()


def replace_all(files: Mapping[Path, bytes]) -> None:
    """Write all files; if one cannot be written, none is changed.

    Raises:
        BadData: A file cannot be written.
    """
    try:
        # Each file gets its name when the block ends.
        with contextlib.ExitStack() as written:
            for path, content in files.items():
                if path.is_dir():
                    raise BadData(f"cannot write {path}: it is a folder")
                path.parent.mkdir(parents=True, exist_ok=True)
                written.enter_context(whole_file(path)).write_bytes(content)
    except OSError as error:
        raise BadData(f"cannot write the files: {error}") from error

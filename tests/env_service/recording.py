"""Recorded responses: 200 dialogues' assistant texts in the result files that bfcl-eval reads.

In: BFCL's tasks. Out: for each category the lines of `BFCL_v4_<category>_result.json`, one a task,
{"id", "result": texts by turn and step}: the reference or a seeded mutation of it, written as a
Qwen model writes calls, some with talk around the calls or with a call that is no JSON. And: the
verdicts of the real `bfcl evaluate` on such files. Called by test_parity.py; run as a program, with
the official environment made by scripts/setup_official.sh, it makes the files of parity/ anew:

    PYTHONPATH=.:tests/env_service .venv-bfcl/bin/python tests/env_service/recording.py
"""

import json
import os
import random
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mutations import Mutation, Trajectory, draw, mutate
from official import exceptions_of
from test_bfcl_differential import material_of

from env_service.environments.bfcl.tasks import BfclTask, load_tasks, reference_calls
from seal.formats import ToolCall, render_calls

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).parent / "parity"
VERDICTS = FOLDER / "verdicts.json"
OFFICIAL_PYTHON = ROOT / ".venv-bfcl-official/bin/python"
MODEL = "Qwen/Qwen3-8B-FC"
"""The registered model whose responses bfcl-eval reads as hermes text."""
CATEGORIES = (
    "multi_turn_base",
    "multi_turn_miss_func",
    "multi_turn_miss_param",
    "multi_turn_long_context",
)
EACH = 50
SEED = 5

Texts = list[list[str]]
"""Assistant texts of each turn."""


def result_file(category: str) -> str:
    """Name of a category's result file."""
    return f"BFCL_v4_{category}_result.json"


def dialogue(task: BfclTask) -> tuple[Texts, Trajectory]:
    """The texts of a task, and the calls they stand for."""
    rng = random.Random(f"{SEED}/{task.task_id}")
    program, material = reference_calls(task), material_of(task)
    # Half of them pass: among mutations few do.
    unchanged = rng.random() < 0.5
    drawn = (
        mutate(program, material, rng, Mutation.UNCHANGED)
        if unchanged
        else draw(program, material, rng)
    )
    texts = [[*map(_written(rng), filter(None, steps)), "Done."] for steps in drawn.turns]
    return texts, drawn


def _written(rng: random.Random) -> Any:
    def write(calls: tuple[ToolCall, ...]) -> str:
        text = render_calls(calls, "hermes")
        match rng.randrange(8):
            case 0:
                return f"I will look into that.\n{text}"
            case 1:
                return f"<think>\nThe user wants {len(calls)} calls.\n</think>\n\n{text}\n"
            case 2:
                return f'{text}\n<tool_call>\n{{"name": "ls", "arguments": }}\n</tool_call>'
        return text

    return write


def chosen(category: str) -> list[BfclTask]:
    """Every fourth task of a category."""
    tasks = [task for task in load_tasks().values() if task.category == category]
    return tasks[:: len(tasks) // EACH]


def recorded(category: str) -> Iterator[dict[str, Any]]:
    """The lines of a category's result file."""
    for task in chosen(category):
        yield {"id": task.task_id, "result": dialogue(task)[0]}


def official_verdicts(results: Path, project: Path) -> dict[str, bool]:
    """What the real `bfcl evaluate` says of result files.

    Args:
        results: Folder with the four result files.
        project: An empty folder, for bfcl-eval to work in.
    """
    where = project / "result" / MODEL.replace("/", "_") / "multi_turn"
    where.mkdir(parents=True)
    verdicts: dict[str, bool] = {}
    for category in CATEGORIES:
        lines = (results / result_file(category)).read_text("utf-8")
        (where / result_file(category)).write_text(lines, "utf-8")
        verdicts |= {json.loads(line)["id"]: True for line in lines.split("\n")[:-1]}
    command = [str(OFFICIAL_PYTHON), "-m", "bfcl_eval", "evaluate", "--partial-eval"]
    command += ["--model", MODEL, "--test-category", ",".join(CATEGORIES)]
    environment = {**os.environ, "BFCL_PROJECT_ROOT": str(project)}
    subprocess.run(command, env=environment, cwd=project, check=True, stdout=subprocess.DEVNULL)
    scores = project / "score" / MODEL.replace("/", "_") / "multi_turn"
    for category in CATEGORIES:
        # A head with the counts, then a line for each task that failed.
        path = scores / result_file(category).replace("_result", "_score")
        head, *failed = map(json.loads, path.read_bytes().splitlines())
        for line in failed:
            verdicts[line["id"]] = False
        passed = [task for task in chosen(category) if verdicts[task.task_id]]
        assert (len(passed), EACH) == (head["correct_count"], head["total_count"])
    return verdicts


def main() -> None:
    """Write parity/: responses, then the verdicts on them."""
    import tempfile

    FOLDER.mkdir(exist_ok=True)
    for category in CATEGORIES:
        lines = [json.dumps(line) + "\n" for line in recorded(category)]
        (FOLDER / result_file(category)).write_text("".join(lines), "utf-8")
    with tempfile.TemporaryDirectory() as project:
        verdicts = official_verdicts(FOLDER, Path(project))
    VERDICTS.write_text(json.dumps(verdicts, indent=0, sort_keys=True) + "\n", "utf-8")
    tasks = load_tasks()
    print(Counter(verdicts.values()), "passed or not")  # noqa: T201
    print(Counter(d for t in verdicts for d in exceptions_of(tasks[t], dialogue(tasks[t])[1])))  # noqa: T201


if __name__ == "__main__":
    main()

"""What candidates are made of: the tasks of a split that lend their worlds, or the tasks of a pool.

In: the file of a split, or the name of a pool. Out: seeds. Of a pool's file only ids and messages
are read.
"""

import subprocess
from pathlib import Path
from typing import Any

from seal import ROOT
from seal.exploration.faults import ExplorationError
from seal.exploration.proposer import Seed
from seal.records.candidates import POOL_TASK
from seal.records.json_lines import BadLine, read_json_lines

PYTHON = ROOT / ".venv-bfcl/bin/python"
"""Of the service's environment, where the synthesiser runs."""
SYNTHESIS = "env_service.environments.bfcl.synthesis"
POOLS = ROOT / "env_service/environments/bfcl/bfcl_data/synthetic"


def split_seeds(path: Path, side: str) -> list[Seed]:
    """The tasks of a side whose worlds may be used: only the synthesiser knows which.

    A task in whose state a task of another side begins lends nothing, and to explore it would be in
    vain.

    Raises:
        ExplorationError: The file is no split, has no such side or task, or the synthesiser is not
            installed here.
    """
    if not PYTHON.exists():
        raise ExplorationError(
            f"the service's environment {PYTHON.parents[1].name} is missing, which says the seeds; "
            "run: bash install.sh"
        )
    command = [str(PYTHON), "-m", SYNTHESIS, "seeds", "--split", str(path.absolute())]
    done = subprocess.run(
        [*command, "--side", side], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ExplorationError(done.stderr.strip().rpartition("\n")[2].removeprefix("synthesis: "))
    if not done.stdout:
        raise ExplorationError(f"--split {path} has no task on side {side} that lends its world")
    return list(map(Seed, done.stdout.split()))


def pool_seeds(name: str, folder: Path = POOLS) -> list[Seed]:
    """The tasks of a pool, to be reworded.

    Raises:
        ExplorationError: There is no such pool, or its file cannot be read.
    """
    path = folder / f"{name}.tasks.jsonl"
    try:
        return list(read_json_lines(path, lambda _, row: _pool_seed(row)))
    except FileNotFoundError:
        raise ExplorationError(
            f"--reword {name}: there is no pool {path}; make it with "
            "python -m env_service.environments.bfcl.synthesis make"
        ) from None
    except (OSError, BadLine) as error:
        raise ExplorationError(f"--reword {name}: {error}") from None


def _pool_seed(row: dict[str, Any]) -> Seed:
    try:
        task_id, turns = row["task_id"], row["turns"]
        texts = tuple(str(turn[0]["content"]) if turn else "" for turn in turns)
    except (KeyError, TypeError, IndexError):
        raise BadLine("it is no task of a pool") from None
    if not POOL_TASK.fullmatch(str(task_id)) or not any(texts):
        raise BadLine("it is no task of a pool")
    return Seed(task_id, texts)

"""What candidates are made of: the base tasks of a split's training side, or the tasks of a pool.

In: the file of a split, or the name of a pool. Out: seeds. Of a pool's file only ids and messages
are read.
"""

import json
from pathlib import Path
from typing import Any

from seal import ROOT
from seal.exploration.faults import ExplorationError
from seal.exploration.proposer import Seed
from seal.records.candidates import POOL_TASK
from seal.records.json_lines import BadLine, read_json_lines

BASE = "multi_turn_base_"
"""How the ids of those tasks begin whose worlds the synthesiser uses."""
POOLS = ROOT / "env_service/environments/bfcl/bfcl_data/synthetic"


def split_seeds(path: Path) -> list[Seed]:
    """The base tasks of a split's training side, in its order.

    Raises:
        ExplorationError: The file is no split, or has no such task.
    """
    try:
        split = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ExplorationError(f"cannot read --split {path}: {error}") from None
    training = split.get("train") if isinstance(split, dict) else None
    if not isinstance(training, list):
        raise ExplorationError(f"{path} is no split: it needs the list 'train'")
    seeds = [Seed(name) for name in training if isinstance(name, str) and name.startswith(BASE)]
    if not seeds:
        raise ExplorationError(f"{path} has no task {BASE}... in its list 'train'")
    return seeds


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

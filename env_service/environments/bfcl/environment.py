"""BFCL V3 multi-turn as an environment of the service.

In: split names and task ids. Out: task ids and live episodes. The self check replays references
that use all tool classes. Pools of synthetic tasks (synthesis/) are played beside the 800.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from env_service.environments.base import (
    EpisodeOptions,
    SelfCheckFailed,
    TaskFile,
    UnknownSplit,
    UnknownTask,
)
from env_service.environments.bfcl.episode import BfclEpisode
from env_service.environments.bfcl.synthesis.pool import BadPool, is_of, read_tasks, sha256_of
from env_service.environments.bfcl.tasks import (
    BfclTask,
    load_tasks,
    reference_calls,
    tool_owner,
)
from env_service.environments.bfcl.tool_classes import TOOL_CLASSES
from env_service.environments.bfcl.verifier import verify
from env_service.environments.dialogue import StepRecord

SPLIT_FILE = Path(__file__).parents[3] / "data" / "bfcl_400_split.json"
"""Task ids of the splits train and val, written by scripts/prepare_bfcl.py."""


SYNTHETIC = "synthetic"
"""Split of the tasks of all pools."""


class BfclEnvironment:
    """All 800 tasks, loaded once, and those of pools.

    Args:
        pools: Files that synthesis/ has made, each of another name.

    Raises:
        SelfCheckFailed: A pool cannot be played.
    """

    def __init__(self, pools: Sequence[TaskFile] = ()) -> None:
        self._tasks = load_tasks()
        self._synthetic = {
            task_id: task for pool in pools for task_id, task in _synthetic_tasks(pool).items()
        }

    def task_ids(self, split: str) -> Sequence[str]:
        """Task ids of "all", which is BFCL's 800, of all pools, or of a split of SPLIT_FILE."""
        own = {"all": tuple(self._tasks)}
        if self._synthetic:
            own[SYNTHETIC] = tuple(self._synthetic)
        if split in own:
            return own[split]
        content = json.loads(SPLIT_FILE.read_text(encoding="utf-8")) if SPLIT_FILE.exists() else {}
        # The file also says which seed drew the splits.
        splits = {name: ids for name, ids in content.items() if isinstance(ids, list)}
        if split not in splits:
            known = ", ".join([*own, *splits])
            missing = "" if splits else f"; {SPLIT_FILE.name} is missing in data/"
            raise UnknownSplit(f"unknown split {split!r} of bfcl; known splits: {known}{missing}")
        return tuple(splits[split])

    def create(self, task_id: str, options: EpisodeOptions) -> BfclEpisode:
        """Make an episode of a task."""
        task = self._tasks.get(task_id) or self._synthetic.get(task_id)
        if task is None:
            raise UnknownTask(
                f"unknown bfcl task {task_id!r}; ids look like multi_turn_base_0, "
                f"/get_env_profile with split all lists all {len(self._tasks)}"
            )
        return BfclEpisode(task, options)

    def self_check(self) -> None:
        """Replay, for each tool class, the first reference that uses it; each must pass."""
        for class_name in TOOL_CLASSES:
            self._check_tool_class(class_name)

    def _check_tool_class(self, class_name: str) -> None:
        task = self._first_task_that_uses(class_name)
        turns = [[StepRecord(calls, ())] for calls in reference_calls(task)]
        verdict = verify(task, turns, truncated=False)
        # A tool that raises does so on both sides of the comparison, so the two sides agree.
        raised = any(turn.reference_error is not None for turn in verdict.evidence)
        if verdict.accuracy != 1.0 or raised:
            raise SelfCheckFailed(
                f"bfcl: the reference of {task.task_id} does not pass the official checks, so "
                f"tool class {class_name} or bfcl-eval is broken; reinstall the service's "
                "requirements"
            )

    def _first_task_that_uses(self, class_name: str) -> BfclTask:
        for task in self._tasks.values():
            calls = (call for turn in reference_calls(task) for call in turn)
            if any(tool_owner(task, call.name) == class_name for call in calls):
                return task
        raise SelfCheckFailed(f"bfcl: no task uses tool class {class_name}")


def _synthetic_tasks(pool: TaskFile) -> Mapping[str, BfclTask]:
    path = Path(pool.path)
    try:
        # A pool made again under a running service would give old ids to new tasks.
        if sha256_of(path) != pool.sha256:
            raise SelfCheckFailed(f"bfcl: {path} is not what it was when the service started")
        tasks = {task.task_id: task for task in read_tasks(path)}
    except (BadPool, OSError) as error:
        raise SelfCheckFailed(f"bfcl: {error}") from error
    for task_id in tasks:
        if not is_of(task_id, pool.pool):
            raise SelfCheckFailed(
                f"bfcl: {path} has the task {task_id}, which is not of the pool {pool.pool}; give "
                "the file its name back, or make the pool again"
            )
    return tasks

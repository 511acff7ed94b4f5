"""The pools of synthetic tasks of a run: which there are, and whether it may use them.

In: a resolved recipe, its data files, and the tables and reports of pools (`seal.tasks.pools`).
Out: names, hashes, the service's files, or a `RunError` that says what to do. A run needs the pool
that it draws from (`data.synthetic_tasks`), and every pool of which a data file has a task.

Two rules keep measurements honest. No scenario of the drawn pool's seeds may be in data.val_files:
variations of what is measured would be trained on. Rows of tasks that are trained on themselves,
such as those of the suite "fixed", are left aside. And a row of a data file has to have its task's
first messages: otherwise it was made from another pool of that name.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from omegaconf import DictConfig

from seal.launch import folders
from seal.launch.data_files import TaskRow, data_files, task_rows
from seal.launch.folders import RunError
from seal.settings.sections import read_settings
from seal.tasks.pools import Pool, pool_of, read_pool, report_file, table_file
from seal.tasks.splits import BadData

TASKS = Path("env_service/environments/bfcl/bfcl_data/synthetic")
"""Where the service's files are, in the project's folder; env_service/ says so, too."""
_SHOWN = 5
"""Scenarios that an error names."""


def needed(recipe: DictConfig) -> tuple[str, ...]:
    """The pools of a run, each once; the one that it draws from is the first.

    Raises:
        RunError: A data file cannot be read.
    """
    drawn = read_settings(recipe).data.synthetic_tasks
    of_rows = names_of(row.task_id for row in _rows(recipe))
    return of_rows if drawn is None else tuple(dict.fromkeys((drawn, *of_rows)))


def names_of(task_ids: Iterable[str]) -> tuple[str, ...]:
    """The pools that tasks belong to, each once."""
    names = dict.fromkeys(map(pool_of, task_ids))
    return tuple(name for name in names if name is not None)


def service_file(name: str) -> Path:
    """The file of a pool that a service plays."""
    return folders.ROOT / TASKS / f"{name}.tasks.jsonl"


def missing_files(name: str, with_service: bool) -> list[Path]:
    """Files of a pool that are not there; `with_service`: those of the service count, too."""
    files = [table_file(folders.ROOT, name), report_file(folders.ROOT, name)]
    files += [service_file(name)] if with_service else []
    return [path for path in files if not path.is_file()]


def missing(recipe: DictConfig, with_service: bool) -> list[str]:
    """Pools of a run of which a file is not there.

    Raises:
        RunError: A data file cannot be read.
    """
    return [name for name in needed(recipe) if missing_files(name, with_service)]


def hashes(recipe: DictConfig) -> dict[str, str]:
    """SHA-256 of the tasks of each pool of a run, by the pool's name.

    Raises:
        RunError: A pool is not there, or its files do not belong together.
    """
    return hashes_of(needed(recipe))


def hashes_of(names: tuple[str, ...]) -> dict[str, str]:
    """The same of pools by their names."""
    return {name: _pool(name).tasks_sha256 for name in names}


def check_pools(recipe: DictConfig, with_service: bool) -> str:
    """Check that a run can use its pools; returns a sentence on them, empty if there are none.

    Raises:
        RunError: A pool is not there or does not fit the data files, or its seeds' scenarios are
            among those that are evaluated.
    """
    names = needed(recipe)
    for name in names:
        if files := missing_files(name, with_service):
            raise RunError(_not_there(name, files[0]))
    pools = {name: _pool(name) for name in names}
    for name, pool in pools.items():
        if with_service and _sha256(service_file(name)) != pool.tasks_sha256:
            raise RunError(
                f"{report_file(folders.ROOT, name)} is not the report of {service_file(name)}; "
                f"make the pool {name!r} again"
            )
    first_messages = {
        task.task_id: list(task.prompt) for pool in pools.values() for task in pool.rows
    }
    for row in _rows(recipe):
        if (of_pool := pool_of(row.task_id)) is not None:
            _check_row(row, of_pool, first_messages.get(row.task_id))
    data = read_settings(recipe).data
    if data.synthetic_tasks is not None:
        _refuse_evaluated(recipe, pools[data.synthetic_tasks], data.synthetic_share)
    return "; ".join(
        f"{name}: {len(pool.rows):,} tasks of {len(pool.scenarios)} scenarios, "
        + (f"share {data.synthetic_share}" if name == data.synthetic_tasks else "of the data files")
        for name, pool in pools.items()
    )


def _refuse_evaluated(recipe: DictConfig, pool: Pool, share: float) -> None:
    trained = {task.task_id for task in pool.rows}
    # With share 1 no prompt comes from the files to train on.
    if share < 1:
        trained.update(row.task_id for row in _rows(recipe, ("train_files",)))
    evaluated = {
        _scenario(row.task_id)
        for row in _rows(recipe, ("val_files",))
        if row.task_id not in trained
    }
    shared = sorted(scenario for scenario in pool.scenarios if str(scenario) in evaluated)
    if shared:
        shown = ", ".join(map(str, shared[:_SHOWN])) + (", ..." if len(shared) > _SHOWN else "")
        raise RunError(
            f"data.synthetic_tasks={pool.name}: {len(shared)} of the {len(pool.scenarios)} "
            f"scenarios of its seeds are in data.val_files ({shown}), so the run would train on "
            "variations of what it is measured on; take data files of other scenarios "
            "(+protocol=clean, with a pool made from data/bfcl_clean_split.json), or another pool"
        )


def _check_row(row: TaskRow, pool: str, prompt: list[dict[str, str]] | None) -> None:
    if prompt != row.prompt:
        raise RunError(
            f"{row.file.name} has a row of {row.task_id} that is not the task of the pool {pool}: "
            "the file was made from another pool of that name; make the pool as it was, or the "
            "file again"
        )


def _scenario(task_id: str) -> str:
    return task_id.rpartition("_")[2]


def _rows(
    recipe: DictConfig, keys: tuple[str, ...] = ("train_files", "val_files")
) -> list[TaskRow]:
    """Rows of the data files that are there; another check names those that are not."""
    paths = [path for key in keys for path in data_files(recipe, key)]
    return [row for path in paths if path.is_file() for row in task_rows(path)]


def _pool(name: str) -> Pool:
    try:
        return read_pool(name, folders.ROOT)
    except BadData as error:
        raise RunError(str(error)) from None


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _not_there(name: str, file: Path) -> str:
    return (
        f"there is no pool {name!r}: {file} is missing; make it: .venv-bfcl/bin/python -m "
        f"env_service.environments.bfcl.synthesis make {name} --split data/bfcl_clean_split.json "
        "(docs/environment.md#synthetic-tasks), or name a command in launcher.build_tasks"
    )

"""Whether runs may be compared: only their recipes' own overrides and their seeds may differ.

In: the study and its runs' logs. Out: sentences for the report, or an error that names what
differs. Compared are the resolved configurations, versions, data files, starting policies,
interface texts, and the groups that were lost to faults of the environment. Recipes are compared
seed by seed, so the floating-point type that a recipe takes from the processor must be the same in
all runs of a seed, and may differ between seeds.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from seal.launch.processor import BFLOAT16, FLAGS, FLOAT32, cpu_dtype
from seal.launch.recipe import RecipeError, load_recipe
from seal.launch.resume import flat
from seal.study.definition import Study, StudyError
from seal.study.logs import RunLogs

OWN = (
    "*experiment_name",
    "trainer.default_local_dir",
    "trainer.rollout_data_dir",
    "trainer.validation_data_dir",
    "trainer.resume_mode",
    "trainer.resume_from_path",
    "trainer.val_before_train",
    "seal.run_id",
    "seal.loop_dir",
    "env_service.env_url",
    "launcher.stall_timeout_s",
    "ray_kwargs.*",
)
"""Patterns of the keys that each run has for itself: names, folders, addresses."""
MOST_LOST = 0.01
"""How much a recipe's share of lost groups may differ from the baseline's."""
MUST = {
    "versions": "versions",
    "service_versions": "versions of the service",
    "data": "data files",
    "policy": "starting policies",
    "interface_texts": "texts of the interface",
}
"""Fields of a launch's record that must be equal in all runs, and their names."""
SHOULD = {
    "git.commit": "code",
    "git.changed": "uncommitted code",
    "git.untracked": "uncommitted code",
    "machine.cpu": "machines",
    "machine.gpus": "machines",
}
"""Fields whose differences are only reported: a commit may change nothing that matters."""
NOT_THE_POLICY = ("policy.built.json", "policy.demonstrations.jsonl")
"""Files beside a policy that tell how it was made, with times, and are never loaded."""
ABSENT_VALUE = "none"
_SHOWN = 6

Compose = Callable[[Sequence[str], str], Mapping[str, Any]]
"""Overrides, and the type that ${cpu_dtype:} gives -> the study's recipe, by key with dots."""
ByType = Mapping[str, Mapping[str, Any]]
"""A configuration by the type that its processor may give it."""


def check(
    study: Study, runs: Mapping[tuple[str, int], RunLogs], compose: Compose | None = None
) -> list[str]:
    """Refuse runs that may not be compared.

    `compose` makes the study's recipe; without it Hydra does.

    Returns:
        Sentences for the report.

    Raises:
        StudyError: Runs differ in something that must be equal; the message names it.
    """
    if not runs:
        return []
    compose = compose or composed(study.conf)
    run_recipes = {run: _by_type(study.run_overrides(*run), compose) for run in runs}
    types = {run: _taken(logs.config, run_recipes[run]) for run, logs in runs.items()}
    first, *others = runs
    recipe = _by_type((), compose)
    for run, logs in runs.items():
        _check_own_lines(logs, recipe, run_recipes[run], types[run])
    resolved = {run: run_recipes[run][types[run] or FLOAT32] for run in runs}
    for other in others:
        _check_configuration(runs, first, other, resolved)
    notes = _check_types(runs, types)
    for wrong in _differences(runs, MUST):
        raise StudyError(f"{wrong}; compare runs of one installation and one data set")
    return [*notes, *_differences(runs, SHOULD), *_check_losses(study, runs)]


def _by_type(overrides: Sequence[str], compose: Compose) -> ByType:
    """The recipe with overrides, by each type that its processor may give it.

    That is one type if the study's recipe does not ask the processor, because composing takes long.
    """
    if compose((), FLOAT32) == compose((), BFLOAT16):
        return {FLOAT32: compose(tuple(overrides), FLOAT32)}
    return {dtype: compose(tuple(overrides), dtype) for dtype in (FLOAT32, BFLOAT16)}


def _asked(recipe: ByType) -> list[str]:
    """Keys that take their value from the processor."""
    first, *others = recipe.values()
    return [key for key, value in first.items() if any(other.get(key) != value for other in others)]


def _taken(config: Mapping[str, Any], recipe: ByType) -> str | None:
    """The type that a run's recipe took from the processor; None if it took none."""
    keys = _asked(recipe)
    fits = (dtype for dtype in recipe if all(config.get(key) == recipe[dtype][key] for key in keys))
    return next(fits, None) if keys else None


def types_of_the_seed(
    study: Study, begun: Mapping[tuple[str, int], RunLogs], run: tuple[str, int], compose: Compose
) -> list[str]:
    """Overrides that make a run compute in the type of the runs of its seed.

    There are none if this processor gives that type. `begun` holds the runs that have finished or
    will be gone on with. If the run itself is one of them, it keeps its own type.

    Raises:
        StudyError: The type is bfloat16, and this processor has no instructions for it.
    """
    for other in (run, *begun):
        if other not in begun or other[1] != run[1]:
            continue
        dtype = _taken(begun[other].config, _by_type(study.run_overrides(*other), compose))
        if dtype is None:
            continue
        if dtype == cpu_dtype():
            return []
        if dtype == BFLOAT16:
            raise StudyError(
                f"{study.run_name(*run)} has to compute in {dtype}, as {begun[other].name} does, "
                f"but this processor has no instructions for it ({' or '.join(sorted(FLAGS))}); "
                "run it on a machine that has them"
            )
        recipe = _by_type(study.run_overrides(*run), compose)
        return [f"{key}={recipe[dtype][key]}" for key in _asked(recipe)]
    return []


def _check_own_lines(logs: RunLogs, recipe: ByType, run_recipe: ByType, dtype: str | None) -> None:
    """What the study file changes of the recipe must be in the run as it is in the file now."""
    now = run_recipe[dtype or FLOAT32]
    changed = {
        key
        for kind in run_recipe
        for key in recipe[kind].keys() | run_recipe[kind].keys()
        if recipe[kind].get(key) != run_recipe[kind].get(key)
    }
    wrong = [
        f"{key}: {logs.config.get(key)}, not {now.get(key)}"
        for key in sorted(changed)
        if now.get(key) != logs.config.get(key) and not _own(key)
    ]
    if wrong:
        raise StudyError(
            f"{logs.name} was not made with the study's overrides as they are now: "
            f"{_first_of(wrong)}. Repeat it, or undo the change of the study"
        )


def _own(key: str) -> bool:
    return any(fnmatch(key, pattern) for pattern in OWN)


def _first_of(wrong: Sequence[str]) -> str:
    more = [f"and {len(wrong) - _SHOWN} more"] if len(wrong) > _SHOWN else []
    return "; ".join([*wrong[:_SHOWN], *more])


def _check_configuration(
    runs: Mapping[tuple[str, int], RunLogs],
    first: tuple[str, int],
    other: tuple[str, int],
    resolved: Mapping[tuple[str, int], Mapping[str, Any]],
) -> None:
    """A key that must differ by what the study makes of it must have these values.

    Recipe, seed and processor decide that. Any other key must be equal in both runs.
    """
    wrong = []
    for key in sorted(runs[first].config.keys() | runs[other].config.keys()):
        values = [runs[run].config.get(key) for run in (first, other)]
        expected = [resolved[run].get(key) for run in (first, other)]
        fits = values[0] == values[1] if expected[0] == expected[1] else values == expected
        if not fits and not _own(key):
            wrong.append(f"{key}: {values[0]} and {values[1]}")
    if wrong:
        raise StudyError(
            f"{runs[first].name} and {runs[other].name} differ in more than their recipes and "
            f"seeds: {_first_of(wrong)}. Repeat one of them with the study as it is"
        )


def _check_types(
    runs: Mapping[tuple[str, int], RunLogs], types: Mapping[tuple[str, int], str | None]
) -> list[str]:
    """Refuse runs of one seed that took different types; tell if seeds took different ones."""
    seeds: dict[int, dict[str, list[str]]] = {}
    for run, dtype in types.items():
        if dtype is not None:
            seeds.setdefault(run[1], {}).setdefault(dtype, []).append(runs[run].name)
    seeds_by_type: dict[str, list[str]] = {}
    for seed, runs_by_type in seeds.items():
        if len(runs_by_type) > 1:
            raise StudyError(
                f"runs of seed {seed} computed in different floating-point types: "
                f"{_grouped(runs_by_type)}. Repeat those of one"
            )
        seeds_by_type.setdefault(next(iter(runs_by_type)), []).append(f"seed {seed}")
    if len(seeds_by_type) < 2:
        return []
    return [f"seeds have different floating-point types: {_grouped(seeds_by_type)}"]


def composed(conf: Path) -> Compose:
    """Makes a recipe with overrides, each list of them once for each type.

    What it returns raises StudyError: Hydra does not accept the recipe with these overrides.
    """

    @functools.cache
    def compose(overrides: Sequence[str], dtype: str) -> dict[str, Any]:
        try:
            return dict(flat(OmegaConf.to_container(load_recipe(conf, overrides, dtype))))
        except RecipeError as error:
            raise StudyError(str(error)) from error

    return compose


def _check_losses(study: Study, runs: Mapping[tuple[str, int], RunLogs]) -> list[str]:
    """Dropped groups by recipe; refused if a recipe lost more or fewer than the baseline."""
    lost = dict.fromkeys((recipe for recipe, _ in runs), 0)
    total = dict.fromkeys(lost, 0)
    for (recipe, _), logs in runs.items():
        lost[recipe] += sum(int(line["dropped_groups"]) for line in logs.rounds)
        total[recipe] += len(logs.rounds) * int(logs.config["data.train_batch_size"])
    if not any(lost.values()):
        return []
    shares = {recipe: lost[recipe] / max(1, total[recipe]) for recipe in lost}
    text = ", ".join(f"{recipe} {lost[recipe]} of {total[recipe]}" for recipe in lost)
    baseline = shares.get(study.baseline, 0.0)
    if any(abs(share - baseline) > MOST_LOST for share in shares.values()):
        raise StudyError(
            f"recipes lost groups unequally to faults of the environment: {text}; "
            "repeat the runs that lost many"
        )
    return [f"groups lost to faults of the environment: {text}"]


def _differences(
    runs: Mapping[tuple[str, int], RunLogs], fields: Mapping[str, str]
) -> Iterator[str]:
    """A sentence for each of the records' fields that is not the same in all runs."""
    for field, what in fields.items():
        for key, groups in _by_value(runs, field).items():
            if len(groups) > 1:
                yield f"runs have different {what}, {key}: {_grouped(groups)}"


def _by_value(
    runs: Mapping[tuple[str, int], RunLogs], field: str
) -> dict[str, dict[str, list[str]]]:
    """For each key of a record's field: each value and the runs that have it.

    A record without a key that another one has counts as another value.
    """
    records = [
        (logs.name, dict(flat({field: _field_of(record, field)})))
        for logs in runs.values()
        for record in logs.records
    ]
    keys = {key: None for _, values in records for key in values if key not in NOT_THE_POLICY}
    groups: dict[str, dict[str, list[str]]] = {}
    for key in keys:
        for name, values in records:
            value = str(values.get(key, ABSENT_VALUE))
            names = groups.setdefault(key, {}).setdefault(value, [])
            if name not in names:
                names.append(name)
    return groups


def _field_of(record: Mapping[str, Any], field: str) -> Any:
    """A field of a record, by its name with dots."""
    value: Any = record
    for name in field.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _grouped(groups: Mapping[str, Iterable[str]]) -> str:
    parts = []
    for value, names in groups.items():
        listed = list(names)
        more = f" and {len(listed) - 2} more" if len(listed) > 2 else ""
        parts.append(f"{', '.join(listed[:2])}{more}: {value:.120}")
    return "; ".join(parts)

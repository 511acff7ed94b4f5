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
    said = {run: _by_type(study.run_overrides(*run), compose) for run in runs}
    types = {run: _taken(logs.config, said[run]) for run, logs in runs.items()}
    first, *others = runs
    recipe = _by_type((), compose)
    for run, logs in runs.items():
        _check_own_lines(logs, recipe, said[run], types[run])
    made = {run: said[run][types[run] or FLOAT32] for run in runs}
    for other in others:
        _check_configuration(runs, first, other, made)
    told = _check_types(runs, types)
    for wrong in _differences(runs, MUST):
        raise StudyError(f"{wrong}; compare runs of one installation and one data set")
    return [*told, *_differences(runs, SHOULD), *_check_losses(study, runs)]


def _by_type(overrides: Sequence[str], compose: Compose) -> ByType:
    """The recipe with overrides, by each type that its processor may give it.

    That is one type if the study's recipe does not ask the processor, because composing takes long.
    """
    if compose((), FLOAT32) == compose((), BFLOAT16):
        return {FLOAT32: compose(tuple(overrides), FLOAT32)}
    return {dtype: compose(tuple(overrides), dtype) for dtype in (FLOAT32, BFLOAT16)}


def _asked(said: ByType) -> list[str]:
    """Keys that take their value from the processor."""
    one, *others = said.values()
    return [key for key, value in one.items() if any(two.get(key) != value for two in others)]


def _taken(config: Mapping[str, Any], said: ByType) -> str | None:
    """The type that a run's recipe took from the processor; None if it took none."""
    keys = _asked(said)
    fits = (dtype for dtype in said if all(config.get(key) == said[dtype][key] for key in keys))
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
        said = _by_type(study.run_overrides(*run), compose)
        return [f"{key}={said[dtype][key]}" for key in _asked(said)]
    return []


def _check_own_lines(logs: RunLogs, recipe: ByType, said: ByType, dtype: str | None) -> None:
    """What the study file changes of the recipe must be in the run as it is in the file now."""
    now = said[dtype or FLOAT32]
    changed = {
        key
        for one in said
        for key in recipe[one].keys() | said[one].keys()
        if recipe[one].get(key) != said[one].get(key)
    }
    wrong = [
        key for key in sorted(changed) if now.get(key) != logs.config.get(key) and not _own(key)
    ]
    if wrong:
        shown = "; ".join(
            f"{key}: {logs.config.get(key)}, not {now.get(key)}" for key in wrong[:_SHOWN]
        )
        raise StudyError(
            f"{logs.name} was not made with the study's overrides as they are now: "
            f"{shown}{_more(wrong)}. Repeat it, or undo the change of the study"
        )


def _own(key: str) -> bool:
    return any(fnmatch(key, pattern) for pattern in OWN)


def _more(wrong: Sequence[str]) -> str:
    return f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""


def _check_configuration(
    runs: Mapping[tuple[str, int], RunLogs],
    first: tuple[str, int],
    other: tuple[str, int],
    made: Mapping[tuple[str, int], Mapping[str, Any]],
) -> None:
    """A key that must differ by what the study makes of it must have these values.

    Recipe, seed and processor decide that. Any other key must be equal in both runs.
    """
    one, two = runs[first].config, runs[other].config
    wrong = []
    for key in sorted(one.keys() | two.keys()):
        if _own(key):
            continue
        expected = [made[run].get(key) for run in (first, other)]
        if expected[0] == expected[1]:
            differs = one.get(key) != two.get(key)
        else:
            differs = [one.get(key), two.get(key)] != expected
        if differs:
            wrong.append(key)
    if wrong:
        shown = "; ".join(f"{key}: {one.get(key)} and {two.get(key)}" for key in wrong[:_SHOWN])
        raise StudyError(
            f"{runs[first].name} and {runs[other].name} differ in more than their recipes and "
            f"seeds: {shown}{_more(wrong)}. Repeat one of them with the study as it is"
        )


def _check_types(
    runs: Mapping[tuple[str, int], RunLogs], types: Mapping[tuple[str, int], str | None]
) -> list[str]:
    """Refuse runs of one seed that took different types; tell if seeds took different ones."""
    seeds: dict[int, dict[str, list[str]]] = {}
    for run, dtype in types.items():
        if dtype is not None:
            seeds.setdefault(run[1], {}).setdefault(dtype, []).append(runs[run].name)
    for seed, found in seeds.items():
        if len(found) > 1:
            raise StudyError(
                f"runs of seed {seed} computed in different floating-point types: "
                f"{_grouped(found)}. Repeat those of one"
            )
    told: dict[str, list[str]] = {}
    for seed, found in seeds.items():
        told.setdefault(next(iter(found)), []).append(f"seed {seed}")
    return [f"seeds have different floating-point types: {_grouped(told)}"] if len(told) > 1 else []


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
    made = dict.fromkeys(lost, 0)
    for (recipe, _), logs in runs.items():
        lost[recipe] += sum(int(line["dropped_groups"]) for line in logs.rounds)
        made[recipe] += len(logs.rounds) * int(logs.config["data.train_batch_size"])
    if not any(lost.values()):
        return []
    shares = {recipe: lost[recipe] / max(1, made[recipe]) for recipe in lost}
    text = ", ".join(f"{recipe} {lost[recipe]} of {made[recipe]}" for recipe in lost)
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
    told = [
        (logs.name, dict(flat({field: _told(record, field)})))
        for logs in runs.values()
        for record in logs.records
    ]
    keys = {key: None for _, values in told for key in values if key not in NOT_THE_POLICY}
    found: dict[str, dict[str, list[str]]] = {}
    for key in keys:
        for name, values in told:
            value = str(values.get(key, ABSENT_VALUE))
            names = found.setdefault(key, {}).setdefault(value, [])
            if name not in names:
                names.append(name)
    return found


def _told(record: Mapping[str, Any], field: str) -> Any:
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

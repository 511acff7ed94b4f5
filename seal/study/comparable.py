"""Whether runs may be compared: only their recipes' own overrides and their seeds may differ.

In: the study and its runs' logs. Out: sentences for the report, or an error that names what
differs. Compared are the resolved configurations, versions, data files, starting policies,
interface texts, and the groups that were lost to faults of the environment. Recipes are compared
seed by seed, so what follows from the processor must be equal within a seed, not between seeds.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from seal.launch.processor import BFLOAT16, FLAGS, cpu_dtype
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
PRECISION = (
    "actor_rollout_ref.*.mixed_precision.param_dtype",
    "actor_rollout_ref.rollout.dtype",
    "distillation.*.inference.dtype",
)
"""Patterns of the keys that a recipe may take from the processor (`${cpu_dtype:}`)."""
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

Compose = Callable[[Sequence[str]], Mapping[str, Any]]
"""A list of overrides -> the study's recipe with them, by key with dots."""


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
    first, *others = runs
    for run, logs in runs.items():
        _check_own_lines(study, run, logs, compose)
    for other in others:
        _check_configuration(study, runs, first, other, compose)
        of_its_seed = next(run for run in runs if run[1] == other[1])
        _check_configuration(study, runs, of_its_seed, other, compose)
    for wrong in _differences(runs, MUST):
        raise StudyError(f"{wrong}; compare runs of one installation and one data set")
    return [*_types(runs), *_differences(runs, SHOULD), *_check_losses(study, runs)]


def precision(config: Mapping[str, Any]) -> dict[str, str]:
    """The floating-point types that a run computes in, by key with dots.

    >>> precision({"actor_rollout_ref.rollout.dtype": "float32", "trainer.device": "cpu"})
    {'actor_rollout_ref.rollout.dtype': 'float32'}
    """
    return {key: str(value) for key, value in config.items() if _matches(key, PRECISION)}


def _check_own_lines(study: Study, run: tuple[str, int], logs: RunLogs, compose: Compose) -> None:
    """What the study file changes of the recipe must be in the run as it is in the file now."""
    recipe, said = compose(()), compose(tuple(study.run_overrides(*run)))
    wrong = [
        key
        for key in sorted(recipe.keys() | said.keys())
        if recipe.get(key) != said.get(key) != logs.config.get(key) and not _matches(key, OWN)
    ]
    if wrong:
        shown = "; ".join(
            f"{key}: {logs.config.get(key)}, not {said.get(key)}" for key in wrong[:_SHOWN]
        )
        raise StudyError(
            f"{logs.name} was not made with the study's overrides as they are now: "
            f"{shown}{_more(wrong)}. Repeat it, or undo the change of the study"
        )


def types_of_the_seed(
    study: Study, runs: Mapping[tuple[str, int], RunLogs], run: tuple[str, int], compose: Compose
) -> list[str]:
    """Overrides that make a run compute in the types of its seed's runs, or of its own start.

    There are some if those were launched on a processor of another kind. `runs` holds all of the
    study's runs, begun or not.

    Raises:
        StudyError: They compute in bfloat16, and this processor has no instructions for it.
    """
    begun = [one for one in (run, *runs) if one[1] == run[1] and precision(runs[one].config)]
    if not begun:
        return []
    said, here = (compose(tuple(study.run_overrides(*one))) for one in (begun[0], run))
    types = {
        key: value
        for key, value in precision(runs[begun[0]].config).items()
        # Where they differ, the study's recipes set the type.
        if said.get(key) == here.get(key) != value
    }
    if BFLOAT16 in types.values() and cpu_dtype() != BFLOAT16:
        raise StudyError(
            f"{runs[begun[0]].name} computed in {BFLOAT16}, and all runs of seed {run[1]} have to, "
            f"but this processor has no instructions for it ({' or '.join(sorted(FLAGS))}). Run "
            f"the study where it has, or take seed {run[1]} out of it"
        )
    return [f"{key}={value}" for key, value in types.items()]


def _matches(key: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(key, pattern) for pattern in patterns)


def _more(wrong: Sequence[str]) -> str:
    return f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""


def _check_configuration(
    study: Study,
    runs: Mapping[tuple[str, int], RunLogs],
    first: tuple[str, int],
    other: tuple[str, int],
    compose: Compose,
) -> None:
    """A key that recipe or seed set must have that value; any other key must be equal in both.

    But for the floating-point types of runs of different seeds.
    """
    own = OWN if first[1] == other[1] else (*OWN, *PRECISION)
    said = [compose(tuple(study.run_overrides(*run))) for run in (first, other)]
    one, two = runs[first].config, runs[other].config
    wrong = []
    for key in sorted(one.keys() | two.keys()):
        if _matches(key, own):
            continue
        expected = [values.get(key) for values in said]
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


def _types(runs: Mapping[tuple[str, int], RunLogs]) -> list[str]:
    """A sentence if runs of different seeds compute in different floating-point types."""
    groups: dict[str, list[str]] = {}
    for logs in runs.values():
        types = ", ".join(sorted(set(precision(logs.config).values())))
        groups.setdefault(types, []).append(logs.name)
    if len(groups) < 2:
        return []
    return [f"runs of different seeds have different floating-point types: {_grouped(groups)}"]


def composed(conf: Path) -> Compose:
    """Makes a recipe with overrides, each list of them once.

    What it returns raises StudyError: Hydra does not accept the recipe with these overrides.
    """

    @functools.cache
    def compose(overrides: Sequence[str]) -> dict[str, Any]:
        try:
            return dict(flat(OmegaConf.to_container(load_recipe(conf, overrides))))
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

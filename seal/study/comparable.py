"""Whether runs may be compared: they differ in their recipes' own lines and seeds alone.

In: the study and its runs' logs. Out: sentences on what to bear in mind, or an error that names
what differs. Checked are the resolved configurations, versions, data files, interface texts and
the groups that were lost to faults of the environment.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

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
"""Keys, as patterns, that every run has for itself: names, folders, addresses."""
MOST_LOST = 0.01
"""By how much the shares of lost groups of two recipes may differ."""
MUST = {
    "versions": "versions",
    "service_versions": "versions of the service",
    "data": "data files",
    "policy": "starting policies",
    "interface_texts": "texts of the interface",
}
"""Fields of a launch's record that all runs must have alike, and their names."""
SHOULD = {"git.commit": "code", "machine.cpu": "machines", "machine.gpus": "machines"}
"""Fields whose differences are told: a change of a page of docs changes no run."""
_SHOWN = 6

Compose = Callable[[Sequence[str]], Mapping[str, Any]]
"""The study's recipe under a list of overrides, by key with dots."""


def check(
    study: Study, runs: Mapping[tuple[str, int], RunLogs], compose: Compose | None = None
) -> list[str]:
    """Refuse runs that may not be compared.

    Args:
        study: What is compared.
        runs: Finished runs by recipe and seed.
        compose: The study's recipe; None: composed with Hydra.

    Returns:
        Sentences for the report.

    Raises:
        StudyError: Runs differ in what they must have in common; the message names it.
    """
    if not runs:
        return []
    compose = compose or _composed(study.conf)
    first, *others = runs
    for other in others:
        _check_configuration(study, runs, first, other, compose)
    for field, what in MUST.items():
        for key, groups in _by_value(runs, field).items():
            if len(groups) > 1:
                raise StudyError(
                    f"runs have different {what}, {key}: {_grouped(groups)}; compare runs of one "
                    "installation and one data set"
                )
    said = []
    for field, what in SHOULD.items():
        for key, groups in _by_value(runs, field).items():
            if len(groups) > 1:
                said.append(f"runs have different {what}, {key}: {_grouped(groups)}")
    return said + _check_losses(study, runs)


def _check_configuration(
    study: Study,
    runs: Mapping[tuple[str, int], RunLogs],
    first: tuple[str, int],
    other: tuple[str, int],
    compose: Compose,
) -> None:
    """Where recipes or seeds differ, a run has what its own say; elsewhere all have the same."""
    said = [compose(study.run_overrides(*run)) for run in (first, other)]
    one, two = runs[first].config, runs[other].config
    wrong = []
    for key in sorted(one.keys() | two.keys()):
        if any(fnmatch(key, pattern) for pattern in OWN):
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
        more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise StudyError(
            f"{runs[first].name} and {runs[other].name} differ in more than their recipes and "
            f"seeds: {shown}{more}. Repeat one of them with the study as it is"
        )


def _composed(conf: Path) -> Compose:
    known: dict[tuple[str, ...], dict[str, Any]] = {}

    def compose(overrides: Sequence[str]) -> dict[str, Any]:
        key = tuple(overrides)
        if key not in known:
            try:
                known[key] = dict(flat(OmegaConf.to_container(load_recipe(conf, overrides))))
            except RecipeError as error:
                raise StudyError(str(error)) from error
        return known[key]

    return compose


def _check_losses(study: Study, runs: Mapping[tuple[str, int], RunLogs]) -> list[str]:
    """Groups that were dropped, by recipe; refused where one recipe lost more than another."""
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


def _by_value(
    runs: Mapping[tuple[str, int], RunLogs], field: str
) -> dict[str, dict[str, list[str]]]:
    """By key of a record's field: each value and the runs that have it."""
    found: dict[str, dict[str, list[str]]] = {}
    for logs in runs.values():
        for record in logs.records:
            for key, value in flat({field: _told(record, field)}):
                names = found.setdefault(key, {}).setdefault(str(value), [])
                if logs.name not in names:
                    names.append(logs.name)
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

"""Keys of the published repository that say how much is trained on synthetic tasks.

In: overrides and a composed recipe with keys of `task_manager`. Out: this project's keys and a
sentence for the user, or a sentence for each key that cannot be taken over. There, a run explores
tasks before it trains and mixes r synthetic tasks to each real one; here a pool is made before the
run, and a share of each batch is drawn from it:

    share = r / (o + r)    o: 1, or 0 with use_original_tasks: false

so r = 1 is a share of one half. An epoch there has (o + r) times as many steps.

| published, below task_manager | here |
|---|---|
| n: tasks of a seed | 0, or a pool: data.synthetic_tasks |
| mixture.synthetic_data_ratio, .use_original_tasks; also as bare names | data.synthetic_share |
| mixture.shuffle | true: the draw is random |
| grader | anything but a model: the verifier gives the reward |
| others | refused; `_REPLACED` has what takes their place |
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

_SECTION = "task_manager"
_N, _RATIO = "n", "mixture.synthetic_data_ratio"
_ORIGINAL, _SHUFFLE = "mixture.use_original_tasks", "mixture.shuffle"
_GRADERS = ("grader.original_grader", "grader.synthetic_grader")
_BARE = {"synthetic_data_ratio": _RATIO, "use_original_tasks": _ORIGINAL}
"""Keys that may stand without their section."""
_EXPLORE = "give it to scripts/explore.py, which has a model propose tasks before the run"
_REPLACED = {
    "llm_client": f"{_EXPLORE}: --name, and --model for the endpoint's address",
    "num_explore_threads": f"{_EXPLORE}: --concurrency",
    "strategy_args.max_explore_step": f"{_EXPLORE}: --calls",
    "strategy_args.exploration_llm_temperature": f"{_EXPLORE}: --temperature",
    "strategy_args.env_url": f"{_EXPLORE}: --env-url",
    "train_data_path": "name a pool in data.synthetic_tasks",
    "val_data_path": "name files in data.val_files",
    "env_profile": "the synthesiser takes --classes (docs/environment.md#synthetic-tasks)",
}
"""What takes the place of a key that is refused."""


@dataclass(frozen=True)
class Translation:
    """What published keys mean here."""

    settings: Mapping[str, Any]
    """This project's keys, dotted, with their values."""
    notes: tuple[str, ...]
    """Sentences for the user."""
    problems: tuple[str, ...]
    """A sentence for each key that cannot be taken over; then the others do not count."""


def apart(overrides: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Overrides without published keys, and the published keys with their values.

    >>> apart(["seed=2", "task_manager.n=0", "synthetic_data_ratio=0.5"])
    (['seed=2'], {'n': 0, 'mixture.synthetic_data_ratio': 0.5})
    """
    own: list[str] = []
    published: dict[str, Any] = {}
    for text in overrides:
        key = text.split("=", 1)[0].lstrip("+~")
        if key in _BARE or key == _SECTION or key.startswith(f"{_SECTION}."):
            published.update(_flat(_BARE.get(key, key.removeprefix(_SECTION)), _value(text)))
        else:
            own.append(text)
    return own, published


def taken_out(recipe: DictConfig) -> dict[str, Any]:
    """Published keys of a composed recipe, which loses them, with their values."""
    published: dict[str, Any] = {}
    OmegaConf.set_struct(recipe, False)
    if _SECTION in recipe:
        section = recipe.pop(_SECTION)
        plain = OmegaConf.to_container(section) if OmegaConf.is_config(section) else section
        published.update(_flat("", plain))
    for key, name in _BARE.items():
        if key in recipe:
            published[name] = recipe.pop(key)
    OmegaConf.set_struct(recipe, True)
    return published


def translate(published: Mapping[str, Any], recipe: DictConfig) -> Translation:
    """What published keys mean for a recipe.

    Args:
        published: Keys below `task_manager`, dotted, with their values.
        recipe: The composed recipe, whose pool they use.
    """
    ratio, original = published.get(_RATIO, 0.0), published.get(_ORIGINAL, True)
    pool = recipe.data.synthetic_tasks
    problems = [*_wrong_kinds(published), *_refused(published)]
    if problems:
        return Translation({}, (), tuple(problems))
    if ratio == 0 and not original:
        problems.append(
            f"{_shown(_ORIGINAL)}=false with {_shown(_RATIO)}=0 leaves no task to train on; set "
            "the ratio"
        )
    if ratio > 0 and pool is None:
        problems.append(
            f"{_shown(_RATIO)}={ratio} needs a pool of synthetic tasks, which is made before the "
            "run (docs/environment.md#synthetic-tasks); name it in data.synthetic_tasks"
        )
    elif published.get(_N, 0) > 0 and pool is None:
        problems.append(
            f"{_shown(_N)}={published[_N]}: tasks are proposed before the run "
            f"(scripts/explore.py --per-seed {published[_N]}, or the synthesiser alone, "
            "docs/environment.md#synthetic-tasks); name their pool in data.synthetic_tasks"
        )
    if _RATIO not in published and _ORIGINAL not in published:
        return Translation({}, (), tuple(problems))
    weight = ratio + (1 if original else 0)
    share = ratio / weight if weight else 0.0
    given = recipe.data.synthetic_share
    if given not in (0, share):
        problems.append(
            f"{_shown(_RATIO)}={ratio} is data.synthetic_share={share:g}, and the recipe has "
            f"{given}; leave one of them out"
        )
    return Translation({"data.synthetic_share": share}, _notes(weight, share, recipe), (*problems,))


def _notes(weight: float, share: float, recipe: DictConfig) -> tuple[str, ...]:
    """What share a ratio is, and the length of a run with as many steps as the published one."""
    if share == 0:
        return ()
    steps = recipe.trainer.total_training_steps
    key, length = ("epochs", recipe.trainer.total_epochs)
    if steps is not None:
        key, length = ("training_steps", steps)
    note = f"{_shown(_RATIO)}: {share:.1%} of each batch is drawn from the pool"
    if weight != 1:
        note += (
            f"; the number of steps stays the same, and the published mixture has {weight:g} times "
            f"as many: trainer.total_{key}={math.ceil(length * weight)}"
        )
    return (note,)


def _wrong_kinds(published: Mapping[str, Any]) -> list[str]:
    problems = []
    for name, fits, wanted in (
        (_N, lambda value: type(value) is int and value >= 0, "a whole number of at least 0"),
        (_RATIO, _is_ratio, "a number of at least 0"),
        (_ORIGINAL, lambda value: type(value) is bool, "true or false"),
    ):
        if name in published and not fits(published[name]):
            problems.append(f"{_shown(name)}={published[name]}: expected {wanted}")
    return problems


def _is_ratio(value: object) -> bool:
    return type(value) in (int, float) and 0 <= float(str(value)) < math.inf


def _refused(published: Mapping[str, Any]) -> list[str]:
    problems = []
    for name, value in published.items():
        key = f"{_shown(name)}={str(value).lower() if isinstance(value, bool) else value}"
        if name in _GRADERS:
            if str(value).startswith("llm"):
                problems.append(
                    f"{key}: a model's judgement is no reward here; the verifier judges real and "
                    "synthetic tasks alike, so leave the key out"
                )
        elif name == _SHUFFLE:
            if value is not True:
                problems.append(f"{key}: tasks are always drawn at random; leave the key out")
        elif name not in (_N, _RATIO, _ORIGINAL):
            other = _REPLACED.get(name, "there is no such setting here; leave the key out")
            problems.append(f"{key} is not taken over: {other}")
    return problems


def _shown(name: str) -> str:
    return f"{_SECTION}.{name}".rstrip(".")


def _value(override: str) -> Any:
    """The value of an override in Hydra's syntax; what Hydra cannot read stays a text."""
    try:
        return OverridesParser.create().parse_override(override).value()
    except HydraException:
        return override.partition("=")[2]


def _flat(name: str, value: Any) -> dict[str, Any]:
    name = name.lstrip(".")
    if not isinstance(value, dict):
        return {name: value}
    flat: dict[str, Any] = {}
    for key, below in value.items():
        flat |= _flat(f"{name}.{key}", below)
    return flat

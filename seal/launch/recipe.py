"""From a recipe and overrides to one resolved configuration.

In: `exp/NAME.yaml` and Hydra overrides. Out: a DictConfig without interpolations. verl's own
configuration is found without importing verl, so composing takes a few seconds on any machine.
A recipe may be in any folder: Hydra looks for the files in its defaults in that folder, in verl's
configuration and in exp/.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seal import ROOT
from seal.launch import known_keys, published_keys, values
from seal.launch.processor import cpu_dtype
from seal.launch.sampling import refused_settings
from seal.settings.reading import shown
from seal.settings.rules import contradictions
from seal.settings.sections import read_settings

EXP = ROOT / "exp"


def attention() -> str:
    """The trainer's kind of attention, as transformers names it.

    "flash_attention_2" if flash-attn is installed, else torch's own, "sdpa": the package has to fit
    Python, torch and CUDA, so many machines do not have it. Nothing else changes: sequences stay
    packed (tests/train/test_packing.py), and log probabilities do not need it
    (`seal.train.log_probs`).
    """
    return "sdpa" if find_spec("flash_attn") is None else "flash_attention_2"


# Recipes write ${cpu_dtype:} and ${attention:}.
OmegaConf.register_new_resolver("cpu_dtype", cpu_dtype, replace=True)
OmegaConf.register_new_resolver("attention", attention, replace=True)


class RecipeError(Exception):
    """The recipe or an override cannot be used; the message names it and says why."""


def load_recipe(
    path: Path,
    overrides: Sequence[str],
    dtype: str | None = None,
    say: Callable[[str], None] | None = None,
) -> DictConfig:
    """Compose and resolve a recipe. Published keys become this project's (`published_keys`).

    Args:
        path: The recipe, e.g. exp/SEAL.yaml.
        overrides: Hydra overrides, e.g. ["trainer.total_epochs=1"].
        dtype: The type that ${cpu_dtype:} gives; None: that of this processor.
        say: Tells the user what a published key means here.

    Raises:
        RecipeError: The file does not exist, the recipe or an override has an unknown key (the
            error names the nearest known keys), a published key cannot be taken over, a setting
            does not act, the syntax is wrong, or values are of a wrong kind or out of their range
            (the error names all of them).
    """
    if not path.is_file():
        recipes = ", ".join(sorted(map(str, path.parent.glob("*.yaml")))) or "none"
        raise RecipeError(f"no recipe {path}; recipes in {path.parent}: {recipes}")
    package = _verl_package()
    folder = path.parent.resolve()
    overrides, published = published_keys.apart(overrides)
    try:
        _refuse_unknown_overrides(_plain(folder, path.stem), overrides, folder)
        recipe = _composed(folder, path.stem, overrides)
        _refuse_other_sections(recipe, path)
        _translate({**published_keys.taken_out(recipe), **published}, recipe, path, say)
        _refuse_unknown_keys(recipe, overrides, path, package)
        _resolve(recipe, dtype)
    except MissingConfigException as error:
        names = ", ".join(error.options or ()) or "none"
        name = error.missing_cfg_file
        raise RecipeError(f"{path}: there is no {name}; there are: {names}") from error
    except (
        HydraException,
        OmegaConfBaseException,
        yaml.YAMLError,
        UnicodeDecodeError,
        ValueError,
    ) as error:
        reasons = dict.fromkeys(map(_first_line, (error, error.__cause__ or error)))
        raise RecipeError(f"{path}: {'; '.join(reasons)}") from error
    _refuse_wrong_values(recipe, path, package)
    _refuse_adapters_on_cpu(recipe)
    refused = "; ".join(refused_settings(recipe))
    if refused:
        raise RecipeError(f"{path}: {refused}")
    return recipe


def refuse_contradictions(recipe: DictConfig) -> None:
    """Refuse settings that are allowed one by one, but not together, once the mode is known.

    Raises:
        RecipeError: There are such settings, or the recipe does not train with this project's
            trainer; the error names all of them.
    """
    problems = contradictions(read_settings(recipe))
    for key, needed in (
        ("trainer.use_v1", True),
        ("trainer.v1.trainer_mode", "seal"),
        ("actor_rollout_ref.rollout.agent.default_agent_loop", "seal"),
    ):
        value = OmegaConf.select(recipe, key)
        if value != needed:
            problems.append(f"{key}={shown(value)}: the method needs {shown(needed)}")
    _refuse(problems, "these settings do not go together:")


def model_length(recipe: DictConfig) -> int:
    """Tokens of the longest dialogue: `max_model_len`, or else prompt and response lengths."""
    lengths = int(recipe.data.max_prompt_length) + int(recipe.data.max_response_length)
    return int(recipe.actor_rollout_ref.rollout.max_model_len or lengths)


def _resolve(recipe: DictConfig, dtype: str | None) -> None:
    if dtype is None:
        OmegaConf.resolve(recipe)
        return
    OmegaConf.register_new_resolver("cpu_dtype", lambda: dtype, replace=True)
    try:
        OmegaConf.resolve(recipe)
    finally:
        OmegaConf.register_new_resolver("cpu_dtype", cpu_dtype, replace=True)


def _composed(folder: Path, name: str, overrides: Sequence[str]) -> DictConfig:
    searchpath = ", ".join(f"'file://{place}'" for place in (_verl_configuration(), EXP))
    with initialize_config_dir(str(folder), version_base=None):
        return compose(name, overrides=[f"hydra.searchpath=[{searchpath}]", *overrides])


@functools.cache
def _plain(folder: Path, name: str) -> dict[str, Any]:
    """A configuration with its interpolations as text."""
    return _as_dict(_composed(folder, name, ()))


def _as_dict(config: DictConfig) -> dict[str, Any]:
    plain = OmegaConf.to_container(config, resolve=False)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _first_line(error: BaseException) -> str:
    chosen = re.match(r"Multiple values for (\w+)\.", str(error))
    if chosen:
        return f"{chosen[1]} is chosen already; to choose another, write {chosen[1]}= without +"
    lines = str(error).strip().splitlines()
    return " ".join(line.strip() for line in lines[:3]) or type(error).__name__


def _translate(
    published: Mapping[str, Any],
    recipe: DictConfig,
    path: Path,
    say: Callable[[str], None] | None,
) -> None:
    if not published:
        return
    translation = published_keys.translate(published, recipe)
    _refuse(translation.problems, f"{path}, with its overrides:")
    for key, value in translation.settings.items():
        OmegaConf.update(recipe, key, value)
    if say is not None:
        for note in translation.notes:
            say(note)


def _refuse_other_sections(recipe: DictConfig, path: Path) -> None:
    missing = [name for name in ("env_service", "seal", "launcher") if name not in recipe]
    if missing:
        raise RecipeError(
            f"{path} is not a recipe: it has no {', '.join(missing)}; a recipe names SEAL or "
            "another recipe in its defaults"
        )


def _verl_package() -> Path:
    spec = find_spec("verl")
    if spec is None or not spec.submodule_search_locations:
        raise RecipeError(
            "verl is not installed in this environment; run `bash install.sh` and use "
            ".venv/bin/python"
        )
    return Path(spec.submodule_search_locations[0])


def _verl_configuration() -> Path:
    return _verl_package() / "trainer" / "config"


def _refuse_unknown_overrides(
    recipe: dict[str, Any], overrides: Sequence[str], folder: Path
) -> None:
    known = set(known_keys.names(recipe))
    for override in overrides:
        key = override.split("=", 1)[0]
        # Hydra itself checks "+key", which adds a key, "~key", which removes one, and groups.
        if "=" not in override or not re.fullmatch(r"[A-Za-z_][\w.]*", key) or key in known:
            continue
        if any((place / key).is_dir() for place in (folder, EXP)):
            continue
        hint = known_keys.nearest(key, sorted(known))
        raise RecipeError(f"unknown key {key!r} in override {override!r}; did you mean: {hint}")


def _refuse_unknown_keys(
    recipe: DictConfig, overrides: Sequence[str], path: Path, package: Path
) -> None:
    verl, seal = _plain(_verl_configuration(), "ppo_trainer"), _plain(EXP, "SEAL")
    added = tuple(text.lstrip("+").split("=", 1)[0] for text in overrides if text.startswith("+"))
    for key in known_keys.unknown(_as_dict(recipe), verl, seal, package):
        # The command line may add a key, everything below it, and the sections around it.
        if not any(f"{new}.".startswith(f"{key}.") or key.startswith(f"{new}.") for new in added):
            known = {*known_keys.names(verl), *known_keys.names(seal)}
            raise RecipeError(
                f"{path}: unknown key {key!r}, in this file or in one of its defaults; did you "
                f"mean: {known_keys.nearest(key, sorted(known))}"
            )


def _refuse_wrong_values(recipe: DictConfig, path: Path, package: Path) -> None:
    verl, usual = _plain(_verl_configuration(), "ppo_trainer"), _plain(EXP, "SEAL")
    _refuse(values.problems(recipe, verl, usual, package), f"{path}, with its overrides:")


def _refuse(problems: Sequence[str], opening: str) -> None:
    if problems:
        gap = " " if len(problems) == 1 else "\n  "
        raise RecipeError(gap.join([opening, *problems]))


def _refuse_adapters_on_cpu(recipe: DictConfig) -> None:
    model = recipe.actor_rollout_ref.model
    if recipe.trainer.device == "cpu" and model.lora_rank > 0 and not model.lora.merge:
        raise RecipeError(
            "on the CPU the rollout engine takes whole weights only; with "
            f"actor_rollout_ref.model.lora_rank={model.lora_rank} set "
            "actor_rollout_ref.model.lora.merge=true, as +tuning=lora does"
        )

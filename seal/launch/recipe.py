"""From a recipe and overrides to one resolved configuration.

In: `exp/NAME.yaml` and Hydra overrides. Out: a DictConfig without interpolations. verl's own
configuration is found without importing verl, so composing takes about a second on any machine.
"""

import difflib
import importlib.util
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException


class RecipeError(Exception):
    """The recipe or an override cannot be used; the message says which and why."""


def load_recipe(path: Path, overrides: Sequence[str]) -> DictConfig:
    """Compose and resolve a recipe.

    Args:
        path: The recipe, e.g. exp/SEAL.yaml.
        overrides: Hydra overrides, e.g. ["trainer.total_epochs=1"].

    Raises:
        RecipeError: No such file, an unknown key (the nearest ones are named), or bad syntax.
    """
    if not path.is_file():
        found = ", ".join(sorted(str(other) for other in path.parent.glob("*.yaml"))) or "none"
        raise RecipeError(f"no recipe {path}; recipes in {path.parent}: {found}")
    searchpath = f"hydra.searchpath=[file://{_verl_configuration()}]"
    with initialize_config_dir(str(path.parent.resolve()), version_base=None):
        try:
            recipe = compose(path.stem, overrides=[searchpath])
            _refuse_unknown_keys(recipe, overrides)
            recipe = compose(path.stem, overrides=[searchpath, *overrides])
            OmegaConf.resolve(recipe)
        except (
            HydraException,
            OmegaConfBaseException,
            yaml.YAMLError,
            UnicodeDecodeError,
            ValueError,
        ) as error:
            said = dict.fromkeys(map(_first_line, (error, error.__cause__ or error)))
            raise RecipeError(f"{path}: {'; '.join(said)}") from error
    _refuse_other_sections(recipe, path)
    return recipe


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return " ".join(line.strip() for line in lines[:3]) or type(error).__name__


def _refuse_other_sections(recipe: DictConfig, path: Path) -> None:
    missing = [name for name in ("env_service", "seal", "launcher") if name not in recipe]
    if missing:
        raise RecipeError(
            f"{path} is no recipe: it has no {', '.join(missing)}; a recipe names SEAL (or another "
            "recipe) in its defaults"
        )


def _verl_configuration() -> Path:
    spec = importlib.util.find_spec("verl")
    if spec is None or not spec.submodule_search_locations:
        raise RecipeError(
            "verl is not installed in this environment; run `bash install.sh` and use "
            ".venv/bin/python"
        )
    return Path(spec.submodule_search_locations[0]) / "trainer" / "config"


def _refuse_unknown_keys(recipe: DictConfig, overrides: Sequence[str]) -> None:
    known = sorted(_keys(recipe))
    for override in overrides:
        key = override.split("=", 1)[0]
        # "+key" adds one and "~key" removes one; Hydra itself checks those.
        if "=" not in override or not re.fullmatch(r"[A-Za-z_][\w.]*", key) or key in known:
            continue
        near = difflib.get_close_matches(key, known, n=3, cutoff=0.6)
        last = [name for name in known if name.split(".")[-1] == key.split(".")[-1]]
        hint = ", ".join([*near, *last][:3]) or "see --dry-run for all keys"
        raise RecipeError(f"unknown key {key!r} in override {override!r}; did you mean: {hint}")


def _keys(node: DictConfig, prefix: str = "") -> Iterator[str]:
    for key in map(str, node):
        name = f"{prefix}{key}"
        yield name
        if not OmegaConf.is_missing(node, key) and not OmegaConf.is_interpolation(node, key):
            value = node[key]
            if isinstance(value, DictConfig):
                yield from _keys(value, f"{name}.")

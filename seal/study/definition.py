"""A study file: which recipes are compared, over which seeds, on which suites.

In: a YAML file. Out: a `Study`. For example:

    conf: exp/quickstart.yaml
    baseline: vanilla
    recipes:
      vanilla: [+method=vanilla]
      seal: []
    seeds: [1, 2, 3]
    overrides: [trainer.test_freq=4]
    suites: [fixed, unseen]
    declared_step: 16
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

INTERACTION = "interaction"
"""What the report calls the interaction of two factors, so no factor has this name."""


class StudyError(Exception):
    """The study cannot be run or reported; the message says why and what to do."""


@dataclass(frozen=True)
class Factorial:
    """A 2 x 2 design: two parts of a method, and a recipe for each way to have them.

    In a study file the two factors have names of their own:

        factorial: {neither: vanilla, interface: no_reweighting, weights: no_interface, both: seal}
    """

    factors: tuple[str, str]
    """Names of the two parts, e.g. interface and weights."""
    neither: str
    """Recipe with neither part."""
    first: str
    """Recipe with the first part alone."""
    second: str
    """Recipe with the second part alone."""
    both: str
    """Recipe with both parts."""

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """The four recipes: neither, first, second, both."""
        return self.neither, self.first, self.second, self.both


@dataclass(frozen=True)
class Study:
    """What is compared."""

    name: str
    """Name of the file. Runs are named NAME-RECIPE-sSEED."""
    conf: Path
    """The recipe that all runs start from."""
    baseline: str
    """The recipe that the others are compared with."""
    recipes: Mapping[str, tuple[str, ...]]
    """Hydra overrides of each recipe, e.g. +method=vanilla."""
    seeds: tuple[int, ...]
    """Each recipe has one run for each seed."""
    suites: tuple[str, ...]
    """Suites of the validation to report. The first one is the study's main one."""
    overrides: tuple[str, ...] = ()
    """Hydra overrides of all runs."""
    options: tuple[str, ...] = ("--with-bfcl",)
    """Options of the launcher."""
    declared_step: int | None = None
    """Step to report, whatever its score. None: only the last step is reported."""
    development: str | None = None
    """Suite on which a step is chosen. None: no such figure."""
    minutes: float | None = None
    """Estimated minutes of a run, used until a run has been timed."""
    fewer_seeds: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Seeds of recipes that have only some of the study's seeds."""
    contrasts: tuple[tuple[str, str], ...] = ()
    """Pairs of recipes to compare beside those with the baseline, e.g. ("seal", "placebo")."""
    factorial: Factorial | None = None
    """Four recipes whose main effects and interaction are reported. None: no such figures."""

    def seeds_of(self, recipe: str) -> tuple[int, ...]:
        """Seeds of one recipe."""
        return self.fewer_seeds.get(recipe, self.seeds)

    def primary(self) -> list[str]:
        """Recipes of the primary comparison: those with all seeds, without the baseline."""
        others = self.recipes.keys() - {self.baseline}
        return [name for name in self.recipes if name in others - self.fewer_seeds.keys()]

    def runs(self) -> list[tuple[str, int]]:
        """Recipe and seed of every run: recipes with all seeds first, each part seed by seed.

        A study that ends early has its main comparison, and as many runs of each recipe in it.
        """
        main = [recipe for recipe in self.recipes if recipe not in self.fewer_seeds]
        return [
            (recipe, seed)
            for part in (main, list(self.fewer_seeds))
            for seed in self.seeds
            for recipe in part
            if seed in self.seeds_of(recipe)
        ]

    def run_name(self, recipe: str, seed: int) -> str:
        """Name of a run, which names its folders."""
        return f"{self.name}-{recipe}-s{seed}"

    def run_overrides(self, recipe: str, seed: int) -> list[str]:
        """The overrides of a run, without its name."""
        return [*self.overrides, *self.recipes[recipe], f"seed={seed}"]


def load_study(path: Path) -> Study:
    """Read a study file.

    Raises:
        StudyError: There is no such file, or a key is missing, unknown or of the wrong kind.
    """
    try:
        read = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise StudyError(f"{path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise StudyError(f"{path} is no YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(read, dict):
        raise StudyError(f"{path} is no study: expected keys such as conf, recipes and seeds")
    try:
        study = _study(path.stem, read)
        _check(study)
    except (TypeError, ValueError, AttributeError) as error:
        raise StudyError(f"{path}: {error}") from None
    return study


def _study(name: str, read: dict[str, Any]) -> Study:
    known = [attribute.name for attribute in fields(Study) if attribute.name != "name"]
    unknown = [str(key) for key in read if key not in known]
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}; there are: {', '.join(known)}")
    missing = [key for key in ("conf", "baseline", "recipes", "seeds", "suites") if key not in read]
    if missing:
        raise ValueError(f"{', '.join(missing)} is missing")
    for key, kinds, words in (
        ("declared_step", (int,), "a whole number"),
        ("minutes", (int, float), "a number"),
        ("development", (str,), "a text"),
    ):
        if read.get(key) is not None and type(read[key]) not in kinds:
            raise ValueError(f"{key}: expected {words}, got {read[key]!r:.80}")
    values = {**read, "conf": Path(read["conf"]), "baseline": str(read["baseline"])}
    values["recipes"] = {str(key): _texts(key, texts) for key, texts in read["recipes"].items()}
    for key in ("suites", "overrides", "options"):
        if key in read:
            values[key] = _texts(key, read[key])
    values["seeds"] = _seeds("seeds", read["seeds"])
    fewer = read.get("fewer_seeds") or {}
    values["fewer_seeds"] = {str(key): _seeds(key, seeds) for key, seeds in fewer.items()}
    values["contrasts"] = tuple(_pair(pair) for pair in read.get("contrasts") or [])
    values["factorial"] = _factorial(read.get("factorial"))
    return Study(name=name, **values)


def _texts(key: object, values: Any) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{key}: expected a list of texts, got {values!r:.80}")
    return tuple(values)


def _pair(values: Any) -> tuple[str, str]:
    names = _texts("contrasts", values)
    if len(set(names)) != 2 or len(names) != 2:
        raise ValueError(f"contrasts: expected pairs of two recipes, got {values!r:.80}")
    return names[0], names[1]


def _factorial(cells: Any) -> Factorial | None:
    if cells is None:
        return None
    expected = "neither, both and the names of two factors, each with its recipe"
    if not isinstance(cells, dict):
        raise ValueError(f"factorial: expected {expected}, got {cells!r:.80}")
    named = {str(key): str(recipe) for key, recipe in cells.items()}
    factors = [key for key in named if key not in ("neither", "both", INTERACTION)]
    if len(factors) != 2 or len(named) != 4:
        raise ValueError(f"factorial: expected {expected}, got {', '.join(named) or 'nothing'}")
    if len(set(named.values())) < 4:
        raise ValueError(f"factorial: a recipe is in two cells: {', '.join(named.values())}")
    first, second = factors
    return Factorial((first, second), named["neither"], named[first], named[second], named["both"])


def _seeds(key: object, values: Any) -> tuple[int, ...]:
    if not (isinstance(values, list) and values and all(type(seed) is int for seed in values)):
        raise ValueError(f"{key}: expected a list of whole numbers, got {values!r:.80}")
    if len(set(values)) < len(values):
        raise ValueError(f"{key}: a seed occurs twice: {values}")
    return tuple(values)


def _check(study: Study) -> None:
    for name in (study.name, *study.recipes):
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_]{0,39}", name):
            raise ValueError(f"{name!r} names folders: use letters, digits and '_', at most 40")
    pairs = [name for pair in study.contrasts for name in pair]
    cells = study.factorial.cells if study.factorial else ()
    for name in (study.baseline, *study.fewer_seeds, *pairs, *cells):
        if name not in study.recipes:
            raise ValueError(f"{name!r} is none of recipes: {', '.join(study.recipes)}")
    for name, seeds in study.fewer_seeds.items():
        if not set(seeds) <= set(study.seeds):
            raise ValueError(f"fewer_seeds: {name} has seeds that are not in seeds")
    if study.baseline in study.fewer_seeds:
        raise ValueError("the baseline has to have all seeds; take it out of fewer_seeds")
    if not study.suites:
        raise ValueError("suites is empty: name those of the validation to report")
    if study.development is not None and study.development not in study.suites:
        raise ValueError(f"development: {study.development!r} is none of suites")

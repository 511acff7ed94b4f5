"""The values of a recipe: every key has the kind and the range that its reader takes.

In: a composed recipe, and verl's own configuration. Out: a sentence for each wrong value: which
key, what was found, what is allowed. Who says what is allowed:

| keys | who |
|---|---|
| our own sections, and what we read of verl's `trainer` and `data` | `seal.settings.sections` |
| those of verl that users set | `seal.launch.verl_keys` |
| others of verl | the class that their section names in `_target_`, else their default's kind |

What is left out of verl's files, and what a recipe passes on unchanged, takes any value.
"""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Optional, Union

from omegaconf import DictConfig

from seal.launch.folders import RunError, run_name
from seal.launch.known_keys import declared
from seal.launch.verl_keys import ACTS_WITH, KINDS, NEVER_ACTS
from seal.settings.reading import SettingsError, adapter, read, shown
from seal.settings.sections import Data, Trainer, plain, read_settings

_WHOLE = ("seed", "env_service", "seal", "launcher")
_OWN = frozenset(
    {
        *_WHOLE,
        *(f"trainer.{field.name}" for field in fields(Trainer)),
        *(f"data.{field.name}" for field in fields(Data)),
    }
)
"""Keys that `seal.settings.sections` reads."""
_NAMES = {kind.__name__: kind for kind in (bool, int, float, str, list, dict, tuple)} | {
    "Any": Any,
    "Optional": Optional,
    "Union": Union,
}
"""What the annotations of verl's classes may name here; others say nothing about a value."""
_SCALARS = (bool, int, float, str)


def problems(
    recipe: DictConfig, verl: Mapping[str, Any], usual: Mapping[str, Any], package: Path
) -> list[str]:
    """A sentence for each wrong value of a resolved recipe.

    `verl` is verl's own configuration, interpolations as text; `usual` is that of exp/SEAL.yaml,
    resolved or not; `package` is the folder of the verl package.
    """
    sentences: list[str] = []
    try:
        read_settings(recipe)
    except SettingsError as error:
        sentences += error.problems
    values = plain(recipe)
    assert isinstance(values, dict)
    listed = [(key, value, KINDS[key]) for key in KINDS for value in _at(values, key)]
    for key, value, kind in (*listed, *_others(values, verl, package, "")):
        try:
            read(adapter(kind), value, key)
        except SettingsError as error:
            sentences += error.problems
    if not sentences:
        sentences += _inert(values, usual)
        try:
            run_name(recipe)
        except RunError as error:
            sentences.append(str(error))
    return sentences


def _at(values: Any, key: str) -> list[Any]:
    """The value of a key; empty if there is no such key."""
    for part in key.split("."):
        if not isinstance(values, dict) or part not in values:
            return []
        values = values[part]
    return [values]


def _others(
    given: Mapping[str, Any], known: Mapping[str, Any], package: Path, prefix: str
) -> Iterator[tuple[str, Any, Any]]:
    """Every key of verl's that has no entry in KINDS, with its value and what it takes."""
    classes = declared(known.get("_target_"), package)
    for key, value in given.items():
        name, default = f"{prefix}{key}", known.get(key)
        if name in _OWN or name in KINDS:
            continue
        if isinstance(default, dict) and isinstance(value, dict):
            yield from _others(value, default, package, f"{name}.")
        elif key in known or key in classes:
            kind = _annotated(classes.get(key))
            if kind is None:
                kind = _kind_of(default)
            # What another key gives may be null, too.
            may_be_null = (key in known and default is None) or _is_open(default)
            may_be_null |= classes.get(key, "").startswith("Optional[")
            yield name, value, Optional[kind] if may_be_null else kind  # noqa: UP045


@functools.cache
def _annotated(annotation: str | None) -> Any:
    """The type that a class of verl declares; None if it is not one of Python's own types."""
    if annotation is None:
        return None
    try:
        # An import of verl would run the same text.
        return eval(annotation, {"__builtins__": {}}, _NAMES)
    except (NameError, AttributeError, SyntaxError):
        return None


def _kind_of(default: object) -> Any:
    if _is_open(default):
        return Any
    return next((kind for kind in (*_SCALARS, list, dict) if isinstance(default, kind)), Any)


def _is_open(default: object) -> bool:
    """Whether a default is an interpolation, or has to be set."""
    return isinstance(default, str) and ("${" in default or default == "???")


def _inert(values: Mapping[str, Any], usual: Mapping[str, Any]) -> Iterator[str]:
    """Settings that were changed and do not act."""
    for key, (switch, acting) in ACTS_WITH.items():
        now, set_to = _at(values, key), _at(values, switch)
        if now and now != _at(usual, key) and set_to and set_to[0] not in acting:
            yield (
                f"{key}={shown(now[0])} does not act with {switch}={shown(set_to[0])}; set "
                f"{switch}={' or '.join(map(shown, acting))}, or leave the former out"
            )
    for key, other in NEVER_ACTS.items():
        now = _at(values, key)
        if now and now != _at(usual, key):
            yield f"{key}={shown(now[0])} does not act: verl reads {other} instead; set that"

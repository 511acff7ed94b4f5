"""The keys that a recipe may have: verl's own, and those that exp/SEAL.yaml defines.

In: composed configurations as plain dicts. Out: names like trainer.total_epochs. Their values are
checked by `seal.launch.values`.

Three kinds of sections take other keys too:
- a section that is empty or null by default, which is passed on unchanged (engine_kwargs,
  override_config, launcher.environment);
- a section that names a class of verl: it takes all fields of the class, and verl's files list only
  some of them;
- the sections in OPEN.
"""

import ast
import difflib
import functools
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

OWN = (
    *("seed", "env_service", "seal", "launcher", "trainer.env_failure"),
    *("data.synthetic_tasks", "data.synthetic_share", "data.synthetic_refresh"),
    *("data.synthetic_steering", "data.synthetic_choice"),
)
"""Keys and sections that exp/SEAL.yaml defines; all other keys are verl's."""

OPEN = (
    # Arguments of ray.init.
    "ray_kwargs.ray_init",
    # Labels, some with a second name; the trainer checks them.
    "seal.weights.utilities",
)
"""Sections that take any key, although they are not empty by default."""


def names(section: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """All keys of nested sections, including the sections themselves.

    >>> list(names({"a": {"b": 1}}))
    ['a', 'a.b']
    """
    for key, value in section.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from names(value, f"{prefix}{key}.")


def unknown(
    recipe: Mapping[str, Any], verl: Mapping[str, Any], seal: Mapping[str, Any], package: Path
) -> list[str]:
    """Keys of a recipe that nothing reads.

    Args:
        recipe: The composed recipe, interpolations as text.
        verl: verl's own configuration, composed alone.
        seal: exp/SEAL.yaml, composed; only the keys in OWN count.
        package: Folder of the verl package.
    """
    return list(_unknown(recipe, _merged(verl, seal), package, ""))


def _merged(verl: Mapping[str, Any], seal: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(verl)
    for name in OWN:
        section, _, key = name.rpartition(".")
        if not section:
            merged[key] = seal[key]
        else:
            merged[section] = {**merged[section], key: seal[section][key]}
    return merged


def _unknown(
    given: Mapping[str, Any], known: Mapping[str, Any], package: Path, prefix: str
) -> Iterator[str]:
    for key, value in given.items():
        name = f"{prefix}{key}"
        if key not in known:
            if key not in declared(known.get("_target_"), package):
                yield name
        elif isinstance(value, dict) and not _is_open(name, known[key]):
            inner = known[key]
            if isinstance(inner, dict):
                yield from _unknown(value, inner, package, f"{name}.")
            else:  # The known value is not a section, so it has no keys.
                yield from (f"{name}.{below}" for below in value)


def _is_open(name: str, default: object) -> bool:
    if name in OPEN or default is None or default == {}:
        return True
    # An interpolation may resolve to a section, and "???" may be set to one.
    return isinstance(default, str) and ("${" in default or default == "???")


def nearest(name: str, known: Collection[str]) -> str:
    """The keys most like a misspelt one, as text."""
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    # The key may be right and the section wrong.
    last = [other for other in known if other.split(".")[-1] == name.split(".")[-1]]
    return ", ".join(list(dict.fromkeys([*near, *last]))[:3]) or "see --dry-run for all keys"


@functools.cache
def declared(target: object, package: Path) -> Mapping[str, str]:
    """Fields of a configuration class of verl with their annotations, as text.

    They are read from its source, because an import takes seconds. No fields: the target is no
    class of verl.
    """
    if not isinstance(target, str) or not target.startswith(f"{package.name}."):
        return {}
    *folders, class_name = target.split(".")[1:]
    classes = _classes(package.joinpath(*folders))
    fields: dict[str, str] = {}
    waiting, seen = [class_name], set()
    while waiting:
        name = waiting.pop(0)
        if name not in classes or name in seen:
            continue
        seen.add(name)
        for line in classes[name].body:
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                # A class is read before its bases, whose fields it may declare anew.
                fields.setdefault(line.target.id, ast.unparse(line.annotation))
        waiting += [base.id for base in classes[name].bases if isinstance(base, ast.Name)]
    return fields


@functools.cache
def _classes(module: Path) -> Mapping[str, ast.ClassDef]:
    """Classes of a module, or of all modules of a package."""
    files = sorted(module.glob("*.py")) if module.is_dir() else [module.with_suffix(".py")]
    return {
        node.name: node
        for file in files
        if file.is_file()
        for node in ast.parse(file.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef)
    }

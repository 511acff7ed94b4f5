"""Variants of a task: the same request with other names, words, files and numbers.

In: a task. Out: a task in which some words of the reference and of the configuration are replaced,
in the same way in the user's messages, in the configuration and in the reference. A variant may not
work; only its replay shows that it does.
"""

import dataclasses
import json
import random
import re
from collections.abc import Iterator
from typing import Any

from env_service.environments.bfcl.tasks import BfclTask, reference_calls
from env_service.environments.bfcl.tool_classes import TOOL_CLASSES, parameter_names, tool_names

WORDS = tuple(
    """
    alpha amber anchor arrow aspen atlas aurora autumn badge banner basil beacon birch blaze bloom
    bonus branch breeze bridge bronze canyon carbon castle cedar census cherry cinder circle cobalt
    comet copper coral crater credit crystal dahlia delta desert diary domino eagle ember empire
    estate falcon fiber flora focus forest fossil galaxy garden glacier granite harbor hazel helium
    horizon iceberg indigo island ivory jasmine journal juniper kernel lagoon lantern lemon linen
    lotus lunar magnet maple marble meadow mercury metro mirror monsoon mosaic nectar nickel nova
    oasis onyx orbit orchid outline oxygen paper parcel pebble pepper phoenix pilot planet plaza
    polar prairie prism quartz raven reef ribbon river ruby saffron sage scarlet shadow sierra
    silver sketch spruce summit sunset survey tango tempo thunder timber topaz tulip tundra umber
    valley vector velvet violet vista walnut willow winter zephyr zinc
    """.split()
)
FIXED = frozenset(
    """
    file directory content contents type root name none true false buy sell user open closed pending
    completed start stop auto on off lines words characters engage release economy business first
    driver passenger front rear celsius fahrenheit fuel battery doors climate headlights usd rmb eur
    gbp jpy technology the and heat cool defrost engine title description priority status resolved
    message ticket stock order brakepedal parkingbrake high medium low limit market rear_left
    rear_right rivermist stonebrook maplecrest silverpine shadowridge london paris sunset valley
    oakendale willowbend crescent hollow autumnville pinehaven greenfield san francisco los angeles
    new york chicago boston beijing hong kong rome tokyo rms sbk mpc svp shd lhr cdg ssv okd wlb crh
    atv phv gfd sfo lax jfk ord bos pek hkg cia hnd pvg cad aud inr rub brl mxn
    """.split()
)
"""Words that mean something to the tools: they stay, like names of tools and of their arguments."""
KEPT_SHARE = 0.15
"""Probability that a replaceable word stays."""
PAIR_SHARE = 0.25
"""Probability that two words replace one."""
SMALL = 5
"""Numbers up to this one stay: they count things or name a choice."""

_NAME = r"[A-Za-z][A-Za-z0-9_]*(?:\.[a-z]{2,4})?"
_FILE = re.compile(r'"([A-Za-z0-9_]+(?:\.[a-z]{2,4})?)": \{"type": "(?:file|directory)"')
_DIGITS = r"\.(?!0(?!\d))\d"
"""Decimals that change the number before them: any but ".0"."""
_LONGEST_NAMING = 40
"""Characters of an argument whose words may be names; a longer argument is prose."""


def renamed(task: BfclTask, rng: random.Random) -> BfclTask:
    """A variant of the task; the task itself if nothing can be replaced."""
    text = "\n".join(message["content"] for turn in task.turns for message in turn)
    config = json.dumps(task.initial_config, ensure_ascii=False)
    values = [
        value for turn in reference_calls(task) for call in turn for value in leaves(call.arguments)
    ]
    names = _new_names(_names(values, text, config), rng)
    numbers = _new_numbers(values, text, config, rng)
    table = {**names, **numbers}
    if not table:
        return task
    longest_first = sorted(table, key=len, reverse=True)
    # References write "30.0" for a user's "30", so ".0" may follow a number.
    pattern = re.compile(
        rf"(?<![A-Za-z0-9_.])({'|'.join(map(re.escape, longest_first))})(?![A-Za-z0-9_]|{_DIGITS})"
    )

    def replaced(value: Any) -> Any:
        match value:
            case str():
                return pattern.sub(lambda word: table[word.group(1)], value)
            case dict():
                return {replaced(key): replaced(item) for key, item in value.items()}
            case list() | tuple():
                return type(value)(map(replaced, value))
            case bool() | None:
                return value
            case int() | float() if _written(value) in numbers:
                return type(value)(float(numbers[_written(value)]))
        return value

    return dataclasses.replace(
        task,
        turns=replaced(task.turns),
        initial_config=replaced(task.initial_config),
        reference=replaced(task.reference),
    )


def leaves(value: Any) -> Iterator[str | int | float]:
    """Strings and numbers in an argument."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield value


def _names(values: list[str | int | float], text: str, config: str) -> list[str]:
    """Words of arguments, and files and folders, that can get another name."""
    words = set(_FILE.findall(config))
    for value in values:
        if isinstance(value, str) and len(value) < _LONGEST_NAMING:
            words.update(re.findall(_NAME, value))
    return [name for name in sorted(words) if _can_change(name, text, config)]


def _can_change(name: str, text: str, config: str) -> bool:
    stem, dot, _ = name.partition(".")
    if len(stem) < 3 or stem.lower() in FIXED | _tool_words() or name not in text + config:
        return False
    # A plain word of the request is a name only if it is quoted or a name of the configuration.
    is_word = not dot and stem.isalpha() and stem.islower()
    is_said = re.search(rf"\b{stem}\b", text) is not None
    return not (is_word and is_said) or f"'{stem}'" in text or f'"{stem}"' in config


def _tool_words() -> frozenset[str]:
    tools = {(owner, tool) for owner in TOOL_CLASSES for tool in tool_names(owner)}
    arguments = {name.lower() for owner, tool in tools for name in parameter_names(owner, tool)}
    return frozenset(arguments | {tool.lower() for _, tool in tools})


def _new_names(names: list[str], rng: random.Random) -> dict[str, str]:
    table = {}
    for name in names:
        if rng.random() < KEPT_SHARE:
            continue
        stem, dot, ending = name.partition(".")
        new = rng.choice(WORDS)
        if rng.random() < PAIR_SHARE:
            new += "_" + rng.choice(WORDS)
        if stem.isupper() and stem.isalpha():  # a stock's symbol, an airport's code
            new = "".join(rng.choice("ABCDEFGHIJKLMNOPRSTUVWXYZ") for _ in stem)
        elif stem[0].isupper():
            new = new.capitalize()
        if any(character.isdigit() for character in stem):
            new += str(rng.randint(2, 99))
        table[name] = new + dot + ending
    return table


def _new_numbers(
    values: list[str | int | float], text: str, config: str, rng: random.Random
) -> dict[str, str]:
    table = {}
    for value in values:
        if isinstance(value, str) or value in range(SMALL + 1):
            continue
        digits = _written(value)
        if not re.search(rf"(?<![\w.,]){re.escape(digits)}(?![\w]|\.\d|,\d)", text):
            continue
        # The same number in the configuration may mean something else.
        if re.search(rf"(?<![\w.]){re.escape(digits)}(?![\w.])", config) and rng.random() < 0.5:
            continue
        rest = ("." if digit == "." else rng.choice("0123456789") for digit in digits[1:])
        table[digits] = rng.choice("123456789") + "".join(rest)
    return table


def _written(number: int | float) -> str:
    """As a user writes it: without ".0"."""
    return str(number).removesuffix(".0")

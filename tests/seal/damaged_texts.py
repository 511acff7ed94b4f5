"""Assistant messages as policies write them: calls in a format, then damaged.

In: a list of calls, a format, a `random.Random`. Out: a text. The damage is what models are seen to
do (fences, prose, cut ends, wrong quotes, missing brackets, other separators) and blind edits, so
that most of the texts lie near the border between what can be read and what cannot.

>>> text = damaged([ToolCall("cd", {"folder": "a"})], "pythonic", random.Random(2))
>>> isinstance(text, str)
True
"""

import json
import random
import re
from collections.abc import Callable, Sequence

from seal.formats import ToolCall, render_calls

Damage = Callable[[str, random.Random], str]

_TOKENS = (
    *("[", "]", "(", ")", "{", "}", "<", ">", "'", '"', "`", "\\", ",", ";", ":", "=", "#", "\n"),
    *(" ", "\t", "\r\n", "-", "+", "*", "1", "0", "e", "1e3", "True", "true", "null", "None"),
    *("caf\u00e9", "\U0001f600", "\\n", "\\u00e9", "\x00", "f()", "f(1)", "a=1", "**", "..."),
    *("<tool_call>", "</tool_call>", "<tool_call>\n", "\n</tool_call>", "</function>"),
    *("<parameter=a>", "</parameter>", "<function=f>", "<|python_tag|>", '{"name": "f"}'),
)
_PROSE = ("Sure.", "I will call ls() now:", "Done (for now).", "Result: 3", "# next", "Note (a) x")


def damaged(calls: Sequence[ToolCall], tool_format: str, rng: random.Random) -> str:
    """The calls as a text with up to three damages; about a fifth have none."""
    text = render_calls(calls, tool_format)
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        text = rng.choice((*_GENERAL, *_OF_FORMAT[tool_format]))(text, rng)
    return text


# ---- damage of any text ------------------------------------------------------------------------


def _cut(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text) + 1)
    return rng.choice((text[:at], text[at:], text[:-1], text[1:]))


def _dropped(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + text[at + rng.randrange(1, 4) :]


def _inserted(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(_TOKENS) + text[at:]


def _doubled(text: str, rng: random.Random) -> str:
    at, end = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
    return text[:end] + text[at:end] + text[end:]


def _fenced(text: str, rng: random.Random) -> str:
    opening = rng.choice(("```\n", "```python\n", "```json\n", "`", "```", "\n\n  "))
    return f"{opening}{text}{rng.choice((chr(10), '')) + opening[:3].strip()}"


def _among_prose(text: str, rng: random.Random) -> str:
    between = rng.choice(("\n", " ", "\n\n", ""))
    prose = rng.choice(_PROSE)
    return rng.choice((f"{prose}{between}{text}", f"{text}{between}{prose}"))


def _twice(text: str, rng: random.Random) -> str:
    return rng.choice((", ", "\n", "; ", " ", "", ";\n", ",\n")).join([text] * rng.choice((2, 3)))


def _swapped(*pairs: tuple[str, str]) -> Damage:
    def damage(text: str, rng: random.Random) -> str:
        old, new = rng.choice(pairs)
        return text.replace(old, new, rng.choice((1, -1)))

    return damage


def _of_one(pattern: str, change: Callable[[re.Match[str], random.Random], str]) -> Damage:
    """Changes one of the places where a pattern matches."""

    def damage(text: str, rng: random.Random) -> str:
        found = list(re.finditer(pattern, text))
        if not found:
            return text
        place = rng.choice(found)
        return f"{text[: place.start()]}{change(place, rng)}{text[place.end() :]}"

    return damage


_GENERAL: tuple[Damage, ...] = (
    *(_cut, _dropped, _inserted, _inserted, _doubled, _fenced, _among_prose, _twice),
    _swapped(("'", '"'), ('"', "'"), ("\n", ""), (" ", ""), ("\n", "\n\n"), ("\n", "\r\n")),
    _swapped(("True", "true"), ("true", "True"), ("False", "false"), ("null", "None")),
    lambda text, rng: f"{text}{rng.choice((',', ', ', ';', '.', ' ', '|', '#', '# that is it'))}",
    lambda text, rng: rng.choice(("<think>\n{}\n</think>\n\n{}", "<think>\n{}{}")).format(
        "hm", text
    ),
    lambda text, rng: f"{text}\n<think>\nhm\n</think>{rng.choice(('', text))}",
)

# ---- damage of one format ----------------------------------------------------------------------

_NUMBERS = (
    "1e3",
    "-1",
    "+2.5",
    "007",
    "1_000",
    "0x10",
    "1.",
    ".5",
    "1e999",
    "9" * 400,
    "--1",
    "~1",
)
_EXPRESSIONS = (
    *("2*3+1", "1/3", "7//2", "2**10", "1/0", "-(2+3)", "'a'+'b'", "'a'*3", "2**9999"),
    *("a+1", "(1, 2)", "x[0]", "x.y", "g(1)", "g(b=1)", "{}", "{'a': {}}", "{1: 2}"),
    *("b'x'", "f'{1}'", "{1}", "...", "not True", "1 if 1 else 2", "[*a]", "a", "1j"),
    *("'\\ud800'", "{'it\\'s': 1}", "[1, [2, {'k': (3,)}]]", "lambda: 1", "{**a}", "5 % 3"),
)
_JSON = (
    *("1e3", "-1", "NaN", "Infinity", "1e999", "9" * 400, "01", '"\\ud800"', '"\\ud83d\\ude00"'),
    *('"a;b"', '"</think>"', '"<tool_call>"', "{}", "[]", "[1, {}]", "null", '"\\/"', "'a'", "2*3"),
    *("(1, 2)", "b'x'", '{"a": 1, "a": 2}', "[" * 120 + "]" * 120, "True", '"f(a=1)"'),
)

_OF_FORMAT: dict[str, tuple[Damage, ...]] = {
    "pythonic": (
        lambda text, rng: text.removeprefix("["),
        lambda text, rng: text.removesuffix("]"),
        lambda text, rng: text[1:-1],
        lambda text, rng: text[1:-1].replace("), ", rng.choice((")\n", "),\n", "); "))),
        _of_one(r"\w+=", lambda place, rng: ""),  # an argument without its name
        _of_one(r"\w+=", lambda place, rng: place[0] * 2),
        _of_one(r"\w+=", lambda place, rng: f"a=1, {place[0]}"),
        _of_one(r"\w+=", lambda place, rng: f"**{{'a': 1}}, {place[0]}"),
        _of_one(r"\w+\(", lambda place, rng: rng.choice(("a.b.", "f().", "x[0].")) + place[0]),
        _of_one(r"\w+\(", lambda place, rng: place[0] + place[0]),
        _of_one(r"(?<==)[^,()\[\]]+", lambda place, rng: rng.choice(_NUMBERS)),
        _of_one(r"(?<==)[^,()\[\]]+", lambda place, rng: rng.choice(_EXPRESSIONS)),
        _of_one(r"(?<==)[^,()\[\]]+", lambda place, rng: rng.choice(_EXPRESSIONS)),
    ),
    "hermes": (
        _swapped(("\n", " "), ("tool_call", "tool_code"), ("arguments", "parameters")),
        _swapped(
            ('"name"', "'name'"), ('"name"', '"tool"'), ('"arguments": ', '"x": 1, "arguments": ')
        ),
        _of_one(r"\{[^{}]*\}", lambda place, rng: json.dumps(place[0])),  # arguments as JSON text
        _of_one(r"\{[^{}]*\}", lambda place, rng: rng.choice(("[]", "null", '"a"', '"[1]"', "3"))),
        _of_one(r'(?<=": )("[^"]*"|[\w.]+)', lambda place, rng: rng.choice(_JSON)),
        _of_one(r'(?<=": )("[^"]*"|[\w.]+)', lambda place, rng: rng.choice(_JSON)),
        _of_one(r'"\w+": ', lambda place, rng: place[0] + f"1, {place[0]}"),
        _of_one(r'"\w+": ', lambda place, rng: rng.choice(('"from": ', '"a b": ', '"": ', "a: "))),
        _of_one(r"</?tool_call>\n?", lambda place, rng: ""),
        _of_one("\n", lambda place, rng: ""),
        _of_one(
            "(?s)<tool_call>.*</tool_call>", lambda place, rng: '<tool_call>\n["f"]\n</tool_call>'
        ),
    ),
    "llama3_json": (
        _swapped(("; ", ", "), ("; ", "\n"), ("; ", "")),
        _swapped(
            ("parameters", "arguments"), ('"name"', '"tool"'), ('"name"', '"type": "f", "name"')
        ),
        lambda text, rng: f"[{text.replace('; ', ', ')}]",
        lambda text, rng: f"<|python_tag|>{text}",
        lambda text, rng: text.replace("true", "True").replace("false", "False"),
        _of_one(r"\{[^{}]*\}", lambda place, rng: rng.choice(("[]", "null", '"a"', '"{}"', "3"))),
        _of_one(r'(?<=": )("[^"]*"|[\w.]+)', lambda place, rng: rng.choice(_JSON)),
        _of_one(r'(?<=": )("[^"]*"|[\w.]+)', lambda place, rng: rng.choice(_JSON)),
        _of_one(r'(?<=": )("[^"]*"|[\w.]+)', lambda place, rng: rng.choice(_EXPRESSIONS)),
        _of_one(r'"\w+": ', lambda place, rng: rng.choice(('"from": ', '"a b": ', "'a': ", "a: "))),
    ),
    "qwen3_coder": (
        _swapped(("</tool_call>\n<tool_call>\n", ""), ("<tool_call>\n", ""), ("</tool_call>", "")),
        _swapped(("</parameter>\n", ""), ("</function>\n", ""), (">\n", ">"), ("\n</", "</")),
        _swapped(("<parameter=", "< parameter = "), ("</parameter>", "</ parameter >")),
        _of_one(r"(?<=>\n)[^<]+(?=\n</par)", lambda place, rng: rng.choice((*_JSON, *_NUMBERS))),
        _of_one(r"(?<=>\n)[^<]+(?=\n</par)", lambda place, rng: rng.choice((*_JSON, *_NUMBERS))),
        _of_one(r"<parameter=(\w+)>", lambda place, rng: f"{place[0]}1</parameter>{place[0]}"),
        _of_one(
            r"<parameter=(\w+)>", lambda place, rng: rng.choice(("<parameter=>", "<parameter= a>"))
        ),
        _of_one(r"<function=(\w+)>", lambda place, rng: rng.choice(("<function=>", "<function=f"))),
        _of_one(r"</?\w+(=\w+)?>\n?", lambda place, rng: ""),
    ),
}

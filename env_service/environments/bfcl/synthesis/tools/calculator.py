"""MathAPI: numbers that the user says, or the result before."""

from typing import Any

from env_service.environments.bfcl.synthesis.sources import Arguments, Source, Tool

_RESULT = {"result": "result"}
_LENGTHS = ("km", "m", "cm", "mm")
_PAIRS = (
    *(("cm", "in"), ("in", "cm"), ("m", "ft"), ("ft", "m"), ("m", "yd"), ("yd", "m")),
    *(("km", "miles"), ("miles", "km"), ("kg", "lb"), ("lb", "kg")),
    *(("celsius", "fahrenheit"), ("fahrenheit", "celsius")),
)
_LONGEST_NUMBER = 8
"""Characters of a result that is worth calculating with."""


def _number(s: Source, low: int, high: int) -> int | float:
    """The result before, if it is a plain number, or a new one."""
    before = s.latest("result")
    if isinstance(before, int | float) and 1 < before and len(str(before)) <= _LONGEST_NUMBER:
        return before
    return s.number(low, high)


def _numbers(s: Source, x: Any) -> Arguments:
    return {"numbers": [s.number(2, 99) for _ in range(s.number(3, 5))]}


def _operands(s: Source, x: Any) -> Arguments:
    return {"a": _number(s, 2, 500), "b": s.number(2, 60)}


def _lengths(s: Source, x: Any) -> Arguments:
    unit_in, unit_out = s.two(_LENGTHS)
    return {"value": _number(s, 2, 900), "unit_in": unit_in, "unit_out": unit_out}


def _units(s: Source, x: Any) -> Arguments:
    unit_in, unit_out = s.pick(_PAIRS)
    return {"value": _number(s, 2, 900), "unit_in": unit_in, "unit_out": unit_out}


_A = {**_RESULT, "a": "result"}
_NUMBER = {**_RESULT, "number": "result"}
_VALUE = {**_RESULT, "value": "result"}

TOOLS = {
    "absolute_value": Tool(
        lambda s, x: {"number": -s.number(2, 900)},
        (
            "tell me how far {number} is from zero",
            "give me {number} without its sign",
            "work out the magnitude of {number}",
        ),
        kinds=_RESULT,
    ),
    "add": Tool(
        _operands,
        (
            "tell me what {a} plus {b} is",
            "calculate {a} plus {b}",
            "give me the sum of {a} and {b}",
        ),
        kinds=_A,
    ),
    "divide": Tool(
        _operands,
        (
            "tell me how often {b} goes into {a}",
            "work out the quotient of {a} by {b}",
            "split {a} into {b} equal parts and tell me how large one is",
        ),
        kinds=_A,
    ),
    "imperial_si_conversion": Tool(
        _units,
        (
            "convert {value} from {unit_in} to {unit_out}",
            "tell me what {value} in {unit_in} is in {unit_out}",
            "express {value} {unit_in} with the unit {unit_out}",
        ),
        kinds=_VALUE,
    ),
    "logarithm": Tool(
        lambda s, x: {
            "value": _number(s, 10, 900),
            "base": s.number(2, 10),
            "precision": s.number(2, 8),
        },
        (
            "compute the log of {value} to base {base} with {precision} digits",
            "tell me the base {base} log of {value}, precise to {precision} digits",
            "give me, with {precision} digits, the exponent that takes {base} to {value}",
        ),
        kinds=_VALUE,
    ),
    "max_value": Tool(
        _numbers,
        (
            "tell me which of {numbers} is the largest",
            "pick the greatest of {numbers}",
            "give me the maximum of {numbers}",
        ),
        kinds=_RESULT,
    ),
    "mean": Tool(
        _numbers,
        (
            "work out the average of {numbers}",
            "tell me what {numbers} are on average",
            "give me the average value of {numbers}",
        ),
        kinds=_RESULT,
    ),
    "min_value": Tool(
        _numbers,
        (
            "tell me which of {numbers} is the smallest",
            "pick the least of {numbers}",
            "give me the minimum of {numbers}",
        ),
        kinds=_RESULT,
    ),
    "multiply": Tool(
        _operands,
        (
            "tell me what {a} times {b} is",
            "calculate {a} times {b}",
            "give me the product of {a} and {b}",
        ),
        kinds=_A,
    ),
    "percentage": Tool(
        lambda s, x: {"part": s.number(2, 50), "whole": s.number(51, 200)},
        (
            "tell me how many percent {part} is of {whole}",
            "work out what share {part} is of {whole}, in percent",
            "express {part} as percent of {whole}",
        ),
        kinds=_RESULT,
    ),
    "power": Tool(
        lambda s, x: {"base": s.number(2, 9), "exponent": s.number(2, 5)},
        (
            "raise {base} to the exponent {exponent}",
            "tell me what {base} to the {exponent} is",
            "calculate {base} with the exponent {exponent}",
        ),
        kinds=_RESULT,
    ),
    "round_number": Tool(
        lambda s, x: {"number": s.number(10001, 999999) / 10000, "decimal_places": s.number(2, 3)},
        (
            "round {number} to {decimal_places} decimals",
            "give me {number} with {decimal_places} decimals",
            "cut {number} to {decimal_places} decimals, rounded",
        ),
        kinds=_RESULT,
    ),
    "si_unit_conversion": Tool(
        _lengths,
        (
            "convert {value} {unit_in} to {unit_out}",
            "tell me how many {unit_out} are {value} {unit_in}",
            "express {value} {unit_in} in {unit_out}",
        ),
    ),
    "square_root": Tool(
        lambda s, x: {"number": _number(s, 2, 900), "precision": s.number(2, 8)},
        (
            "compute the root of {number} with {precision} digits",
            "tell me which number squared is {number}, to {precision} digits",
            "give me the root of {number}, precise to {precision} digits",
        ),
        kinds=_NUMBER,
    ),
    "standard_deviation": Tool(
        _numbers,
        (
            "work out how much {numbers} deviate from their average",
            "compute the standard deviation of {numbers}",
            "give me the spread of {numbers} as a standard deviation",
        ),
        kinds=_RESULT,
    ),
    "subtract": Tool(
        _operands,
        (
            "tell me what {a} minus {b} is",
            "take {b} from {a} and give me the rest",
            "calculate {a} minus {b}",
        ),
        kinds=_A,
    ),
    "sum_values": Tool(
        _numbers,
        (
            "tell me the total of {numbers}",
            "give me what {numbers} make together",
            "calculate the sum of {numbers}",
        ),
        kinds=_RESULT,
    ),
}
"""By the tool's name."""

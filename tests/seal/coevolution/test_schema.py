"""Arguments against a tool's schema."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seal.coevolution.schema import schema_violations

# Run times on a shared machine say nothing; what is slow is tested by itself.
UNTIMED = settings(deadline=None)


def of_field(value: object, field: dict[str, Any]) -> tuple[str, ...]:
    return schema_violations({"x": value}, {"type": "dict", "properties": {"x": field}})


@pytest.mark.parametrize(
    ("declared", "good", "bad"),
    [
        ("string", ["a", ""], [1, None, ["a"]]),
        ("integer", [1, -1, 10**20], [1.0, True, "1", None]),
        ("float", [1.5, 1], [True, "1.5"]),
        ("number", [1.5, 1], [False]),
        ("boolean", [True, False], [0, "true"]),
        ("array", [[], [1]], ["a", {}]),
        ("tuple", [[1, 2]], ["a"]),
        ("dict", [{}, {"a": 1}], [[], "{}"]),
        ("object", [{}], [1]),
        ("any", [1, "a", None, []], []),
    ],
)
def test_types(declared: str, good: list[object], bad: list[object]) -> None:
    for value in good:
        assert of_field(value, {"type": declared}) == ()
    for value in bad:
        (violation,) = of_field(value, {"type": declared})
        assert violation.startswith("argument 'x' must be")


def test_required_and_unknown() -> None:
    schema = {"properties": {"a": {"type": "any"}, "b": {"type": "any"}}, "required": ["a", "b"]}
    assert schema_violations({"b": 1, "c": 2}, schema) == (
        "missing required argument 'a'",
        "unknown argument 'c'",
    )


def test_an_enum_does_not_take_true_for_one() -> None:
    assert of_field(1, {"type": "any", "enum": [1]}) == ()
    assert len(of_field(True, {"type": "any", "enum": [1]})) == 1
    assert len(of_field("secret", {"type": "string", "enum": ["a"]})) == 1


def test_nested_fields_are_named_by_path() -> None:
    inner = {"type": "dict", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    assert of_field({}, inner) == ("missing required argument 'x.n'",)
    assert of_field([{"n": 1}, {"n": "1"}, {}], {"type": "array", "items": inner}) == (
        "argument 'x[].n' must be an integer, got a string",
    )


def test_an_object_without_declared_fields_takes_any() -> None:
    assert of_field({"a": 1}, {"type": "dict"}) == ()


@UNTIMED
@given(st.text(min_size=4))
def test_no_violation_quotes_a_value(value: str) -> None:
    secret = f"<<{value}>>"
    for field in ({"type": "integer"}, {"type": "string", "enum": ["a"]}):
        assert secret not in " ".join(of_field(secret, field))

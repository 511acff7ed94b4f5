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


def test_an_object_may_say_itself_that_it_takes_more() -> None:
    field = {"type": "object", "properties": {}, "additionalProperties": {"type": "integer"}}
    assert of_field({"a": 1}, field) == ()
    assert of_field({"a": "1"}, field) == ("argument 'x.a' must be an integer, got a string",)


def test_other_rules_of_json_schema_are_named() -> None:
    assert of_field(3, {"type": "integer", "minimum": 4}) == (
        "argument 'x' breaks the rule 'minimum' of its schema",
    )


def test_a_wrong_type_is_said_once_and_a_list_by_its_first_wrong_item() -> None:
    assert len(of_field(1, {"type": "string", "enum": ["a"], "minLength": 2})) == 1
    assert len(of_field([1] * 10_000, {"type": "array", "items": {"type": "string"}})) == 1


def test_deep_long_and_odd_arguments_are_only_classed() -> None:
    deep: object = 1
    for _ in range(2_000):  # deeper than repr takes
        deep = [deep]
    assert of_field(deep, {"type": "string"}) == ("argument 'x' must be a string, got an array",)
    assert of_field(10**5000, {"type": "string"}) == (
        "argument 'x' must be a string, got an integer",
    )
    (violation,) = schema_violations({"n" * 1000: 1}, {"properties": {}})
    assert len(violation) < 100


def test_a_schema_that_was_changed_is_read_again() -> None:
    schema: dict[str, Any] = {"properties": {"a": {"type": "string"}}}
    assert schema_violations({"a": 1}, schema)
    schema["properties"]["a"]["type"] = "integer"
    assert schema_violations({"a": 1}, schema) == ()


@UNTIMED
@given(st.text(min_size=4))
def test_no_violation_quotes_a_value(value: str) -> None:
    secret = f"<<{value}>>"
    for field in ({"type": "integer"}, {"type": "string", "enum": ["a"]}):
        assert secret not in " ".join(of_field(secret, field))

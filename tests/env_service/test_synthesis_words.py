"""What users say: a source and three wordings for every tool, and what "that order" stands for."""

import random
import re

import pytest

from env_service.environments.bfcl.synthesis.sources import RECENT, Memory
from env_service.environments.bfcl.synthesis.tools import TOOLS, every_tool
from env_service.environments.bfcl.synthesis.wording import (
    GIVEN_LATER,
    JOINTS,
    LEFT_OPEN,
    LITERALS,
    NEW_SENTENCES,
    OPENERS,
    request,
    spoken,
)
from env_service.environments.bfcl.tasks import class_docs
from env_service.environments.bfcl.tool_classes import TOOL_CLASSES, tool_names
from seal.formats import ToolCall

ALWAYS_FAILS = {"get_outside_temperature_from_weather_com"}

# ---- the tools ---------------------------------------------------------------------------------


def test_every_tool_that_can_succeed_has_an_entry() -> None:
    assert TOOLS.keys() == {*TOOL_CLASSES}
    for owner in TOOL_CLASSES:
        assert tool_names(owner) - ALWAYS_FAILS == TOOLS[owner].keys()


@pytest.mark.parametrize("name", every_tool())
def test_every_tool_has_three_wordings_that_state_all_arguments(name: str) -> None:
    wordings = every_tool()[name].wordings
    assert len({*wordings}) == len(wordings) >= 3
    (stated,) = {frozenset(re.findall(r"{(\w+)}", wording)) for wording in wordings}
    owner = next(owner for owner in TOOLS if name in TOOLS[owner])
    (doc,) = (doc["function"] for doc in class_docs(owner) if doc["function"]["name"] == name)
    parameters = doc["parameters"]
    assert {*parameters.get("required", ())} <= stated <= parameters["properties"].keys()


def test_no_wording_names_a_tool() -> None:
    names = {name for owner in TOOL_CLASSES for name in tool_names(owner)}
    said = [*OPENERS, *JOINTS, *NEW_SENTENCES, *GIVEN_LATER, LEFT_OPEN, *LITERALS.values()]
    for tool in every_tool().values():
        said += [*tool.wordings, *tool.kinds.values()]
        said += [phrase for phrases in tool.phrases.values() for phrase in phrases.values()]
    for text in said:
        assert names.isdisjoint(re.findall(r"\w+", re.sub(r"{\w+}", "", text))), text


# ---- what was shown ----------------------------------------------------------------------------

ORDER = every_tool()["get_order_details"]
DETAILS = ToolCall("get_order_details", {"order_id": 7})
TIME = ToolCall("get_current_time", {})


def said(memory: Memory, argument: str, value: object) -> str | None:
    return memory.indirect(ORDER, argument, value)


def test_that_order_is_the_one_that_was_mentioned_last() -> None:
    memory = Memory()
    assert said(memory, "order_id", 7) is None
    memory.learn(ORDER, DETAILS, '{"status": "Open", "symbol": "AAPL"}')
    assert said(memory, "order_id", 7) == "that order"
    assert said(memory, "order_id", 8) is None and said(memory, "price", 7) is None
    memory.learn(every_tool()["place_order"], ToolCall("place_order", {}), '{"order_id": 8}')
    assert said(memory, "order_id", 8) == "that order"
    assert said(memory, "order_id", 7) is None
    history = ToolCall("get_order_history", {})
    memory.learn(every_tool()["get_order_history"], history, '{"history": [7, 8]}')
    assert said(memory, "order_id", 8) is None


def test_after_some_calls_that_order_is_no_longer_clear() -> None:
    memory = Memory()
    memory.learn(ORDER, DETAILS, "{}")
    for _ in range(RECENT - 1):
        memory.learn(every_tool()["get_current_time"], TIME, "{}")
    assert said(memory, "order_id", 7) == "that order"
    memory.learn(every_tool()["get_current_time"], TIME, "{}")
    assert said(memory, "order_id", 7) is None


def test_a_value_has_the_name_by_which_it_was_looked_up() -> None:
    memory = Memory()
    call = ToolCall("get_zipcode_based_on_city", {"city": "Rivermist"})
    memory.learn(every_tool()[call.name], call, '{"zipcode": "83214"}')
    distance = every_tool()["estimate_distance"]
    assert memory.indirect(distance, "cityA", "83214") == "Rivermist"
    assert memory.indirect(distance, "cityB", "74532") is None
    assert memory.uses_result({"cityA": "83214", "cityB": "74532"})
    assert not memory.uses_result({"cityA": "74532"})


# ---- requests ----------------------------------------------------------------------------------

TOUCH = ToolCall("touch", {"file_name": "a.txt"})
WRITE = ToolCall("echo", {"content": "Some words", "file_name": "a.txt"})


@pytest.mark.parametrize("number", range(20))
def test_a_request_says_every_value_or_what_stands_for_it(number: int) -> None:
    rng = random.Random(number)
    direct = request([TOUCH, WRITE], [{}, {}], 1.0, rng)
    assert direct.text.count("a.txt") == 2 and "'Some words'" in direct.text
    assert direct.text[0].isupper() and direct.text[-1] in ".?"
    assert (direct.text[-1] == "?") == direct.text.startswith("Could you ")
    assert "." not in direct.text.replace("a.txt", "")[:-1] or direct.text[-1] == "."
    indirect = request([TOUCH, WRITE], [{}, {"file_name": "that file"}], 1.0, rng)
    assert indirect.text.count("a.txt") == 1 and "that file" in indirect.text


def test_only_a_name_that_is_said_as_it_is_can_be_given_later() -> None:
    asked = request([TOUCH, WRITE], [{}, {"file_name": "that file"}], 1.0, random.Random(1))
    assert asked.removable == {"file_name_0": "a.txt"}
    assert "a.txt" not in asked.without("file_name_0")
    assert "a certain file" in asked.without("file_name_0")
    assert "the file" in asked.given_later("file_name_0", random.Random(1)).lower()
    assert "a.txt" in asked.given_later("file_name_0", random.Random(1))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3.0, "3"),
        (2.5, "2.5"),
        (["a"], "a"),
        ([1, 2.0, "x"], "1, 2 and x"),
        ({"priority": 3, "title": "A b"}, "priority 3, title 'A b'"),
    ],
)
def test_values_are_said_without_brackets(value: object, text: str) -> None:
    assert spoken(value) == text

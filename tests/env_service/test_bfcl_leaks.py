"""No text that the learning interface adds tells anything of a task's reference.

Two episodes take the same steps side by side (twins.py): one of mode "train" with every part of the
interface on, one of mode "eval" on a copy of the task that has no reference. What the first shows
beyond the second is the added text; the rules that it is held to are in leaks.py, leak_search.py
plays the episodes. The last tests plant a leak in every place and look for it.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from known_failures import ANSWER
from leak_search import (
    INTERFACES,
    SHOWN_AT_ONCE,
    nothing_yet,
    play,
    play_all,
    played,
    reason_findings,
)
from leaks import Secrets
from twins import Twins

from env_service.environments.base import EpisodeOptions
from env_service.environments.bfcl.episode import BfclEpisode
from env_service.environments.bfcl.tasks import BfclTask, load_tasks
from seal.coevolution import texts
from seal.coevolution.diagnosis import CallEvidence
from seal.coevolution.interface import Interface
from seal.formats import ParseFault, ToolCall, render_calls
from seal.labels import Label
from seal.wire import ToolDoc, TurnDiagnosis

SOME_TASKS = [*load_tasks().values()][::53]


def test_interfaces_show_every_guideline() -> None:
    assert {label for one in INTERFACES for label in one.guidelines} == {*texts.GUIDELINES}
    assert all(len(one.guidelines) == SHOWN_AT_ONCE for one in INTERFACES)


def test_added_texts_hold_nothing_of_the_reference() -> None:
    tally = play_all(SOME_TASKS, every=1, drawn=2)
    assert tally.added["note"] == tally.episodes > 200
    assert tally.added["marks"] > 4000 and tally.added["revealed marks"] > 30
    assert tally.added["hint"] > 150 and tally.added["parse feedback"] > 10
    assert tally.replies > 2000 and tally.reasons > 800
    assert sum(tally.hidden.values()) > 60


@pytest.mark.slow
def test_added_texts_hold_nothing_of_any_reference() -> None:
    tally = play_all(load_tasks().values(), every=4, drawn=1)
    assert len(tally.hidden) == 800 and sum(tally.hidden.values()) > 3000
    assert tally.added["note"] == tally.episodes > 3000
    assert tally.added["marks"] > 50_000 and tally.added["revealed marks"] > 1000
    assert tally.added["hint"] > 1500 and tally.added["parse feedback"] > 150
    assert tally.replies > 30_000 and tally.reasons > 12_000


# ---- the rules find what breaks them -------------------------------------------------------

LEAKED = Secrets(load_tasks()["multi_turn_miss_func_150"])
"""A reference with values that are found out by calls only, and a tool that is held out."""
BROKEN = "<tool_call>\n{'name': 1}\n</tool_call>"
WRONG = render_calls([ToolCall("get_flight_cost", {"travel_from": "here"})], "hermes")
CHANNELS = ("docs", "note", "parse feedback", "hint")


@dataclass(frozen=True)
class Leaky(Interface):
    """An interface that tells a secret in one of its channels."""

    channel: str = ""
    secret: str = ""

    def tool_docs(self, docs: Sequence[ToolDoc]) -> list[ToolDoc]:
        shown = copy.deepcopy(super().tool_docs(docs))
        for doc in shown if self.channel in ("docs", "rewritten docs") else ():
            for field in doc["function"]["parameters"]["properties"].values():
                before = field["description"] if self.channel == "docs" else ""
                field["description"] = f"{before} {self.secret}"
        return shown

    def system_note(self) -> str | None:
        return f"{super().system_note()}{self._told('note')}"

    def parse_feedback(self, faults: Sequence[ParseFault]) -> str | None:
        return f"{super().parse_feedback(faults)}{self._told('parse feedback')}"

    def call_feedback(self, call: CallEvidence) -> str | None:
        if self.channel == "phrase":
            return super().call_feedback(replace(call, violations=(self.secret,)))
        return f"{super().call_feedback(call)}{self._told('hint')}"

    def _told(self, channel: str) -> str:
        return f" {self.secret}" if channel == self.channel else ""


def rules_broken(
    channel: str, secret: str, episode: type[BfclEpisode] = BfclEpisode, tools: str = "structured"
) -> set[str]:
    """Rules that are found broken where an interface tells this."""
    interface = Leaky(7, True, True, True, (Label.STATE_MISMATCH,), channel, secret)
    said = [[f"{WRONG}\n{BROKEN}", ANSWER]]
    return {one.rule for one in play(LEAKED, interface, said, nothing_yet(), tools, episode)}


@pytest.mark.parametrize("tools", ["structured", "prompt"])
def test_an_interface_that_tells_nothing_breaks_no_rule(tools: str) -> None:
    assert rules_broken("none", "", tools=tools) == set()


@pytest.mark.parametrize("tools", ["structured", "prompt"])
@pytest.mark.parametrize("channel", CHANNELS)
def test_a_leak_is_found_wherever_it_is(channel: str, tools: str) -> None:
    assert {"SBK", "RMS"} <= LEAKED.strings and 22000.0 in LEAKED.numbers
    assert {"value", "template"} <= rules_broken(channel, "Use 'SBK'.", tools=tools)
    assert {"value", "template"} <= rules_broken(channel, "Give it 22000.", tools=tools)
    held_out = rules_broken(channel, "Wait for set_budget_limit.", tools=tools)
    assert {"name", "template"} <= held_out
    # The user says this one, but not yet; the next one was said, so all that is wrong is the text.
    assert {"value", "template"} <= rules_broken(channel, "Up to 15400.", tools=tools)
    assert rules_broken(channel, "Not economy.", tools=tools) == {"template"}


def test_a_value_in_the_place_of_a_quote_is_found() -> None:
    assert rules_broken("phrase", "missing required argument 'travel_to'") == set()
    assert rules_broken("phrase", "missing required argument 'SBK'") == {"value", "template"}
    assert rules_broken("phrase", "argument 'travel_to' must be 'SBK'") == {"value", "template"}


def test_a_doc_that_is_rewritten_is_found() -> None:
    assert rules_broken("rewritten docs", "Anything.") == {"begun"}


class Knowing(BfclEpisode):
    """Shows nothing but fixed sentences, but which ones, the reference decides."""

    def __init__(self, task: BfclTask, options: EpisodeOptions) -> None:
        cued = any(task.reference)
        super().__init__(
            task, replace(options, interface=replace(options.interface, affordance_cues=cued))
        )


def test_a_text_that_depends_on_the_reference_is_found() -> None:
    assert rules_broken("none", "", Knowing) == {"reference"}


@pytest.mark.parametrize(
    "reason",
    [
        "the state differs after the turn in TravelAPI.budget_limit=22000.0",
        "the state is right, but results are missing: {'travel_cost_list': [400.0]}",
        "'get_flight_cost' was called with wrong arguments: argument 'travel_to' must be 'SBK'",
        "'set_budget_limit' was called, but the turn needs no tool",
    ],
)
def test_a_reason_that_tells_more_than_it_may_is_found(reason: str) -> None:
    twins = Twins(LEAKED.task, INTERFACES[0], "structured", BfclEpisode)
    [*played(twins, [[WRONG, ANSWER]], [])]
    assert [*reason_findings(LEAKED, twins, twins.shown.evaluate().diagnosis)] == []
    assert [*reason_findings(LEAKED, twins, [TurnDiagnosis(0, Label.PASS, reason, None)])]

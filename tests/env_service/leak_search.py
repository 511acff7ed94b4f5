"""Plays trajectories through the learning interface and names every rule that a text breaks.

In: tasks. Out: a `Finding` for each leak, and a `Tally` of what was looked at. To the rules of
leaks.py come two: what the service sends at /create and /step is the same without the reference
(reference), which covers what no list of rules thinks of; and reasons of /evaluate are checked
apart (reason), as the trainer gets them and the policy does not.
"""

import itertools
import logging
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from known_failures import ANSWER, known_failures
from leaks import VIOLATIONS, Added, Finding, Secrets, paths_of_doc, paths_of_value, skeleton
from material import Material
from mutations import draw
from twins import NotBegun, Twins, without_reference

from env_service.environments.base import EpisodeOptions
from env_service.environments.bfcl.episode import BfclEpisode
from env_service.environments.bfcl.tasks import BfclTask, reference_calls
from seal.coevolution.evolution import InterfaceConfig
from seal.coevolution.interface import Interface
from seal.formats import ToolCall, render_calls
from seal.labels import FAILURES
from seal.wire import CreateReply, StepReply, TurnDiagnosis

LOG = logging.getLogger(__name__)

SHOWN_AT_ONCE = InterfaceConfig().max_guidelines
INTERFACES = [
    Interface(7, True, True, True, (*FAILURES, *FAILURES)[first : first + SHOWN_AT_ONCE])
    for first in range(len(FAILURES))
]
"""Everything on; between them they show each guideline in each place."""

Said = Sequence[Sequence[str]]
"""What the assistant says in each turn."""

# ---- reasons -------------------------------------------------------------------------------

PLAIN_REASONS = {
    "the reference program failed on this turn",
    "no tool was called, and the turn needs none",
    "state and responses are what the verifier expects",
    "the turn was answered without a call, but it needs one",
    "the dialogue was cut (step limit or tokens) before the turn was answered",
}
OF_A_CALL = {
    " was called, but the turn needs no tool",
    " is no tool that is available at this turn",
}
WRONG_ARGUMENTS = " was called with wrong arguments: "
ERROR = " gave an execution error and did not run later: "
UNREADABLE = "a tool call could not be read: "
DIFFERS = re.compile(
    "(?:the state differs after the turn in |the turn called another set of tool classes than it "
    "needs; it went wrong in )(.*)"
)
COUNTED = re.compile(
    r"the state is right, but results are missing(?: whose tools were not called)?: \d+"
)
CASCADE = "; only because an earlier turn had failed already"


def flat(text: str) -> str:
    """One line, as reasons quote it."""
    return " ".join(text.split())


def reason_findings(
    secrets: Secrets, twins: Twins, turns: Sequence[TurnDiagnosis]
) -> Iterator[Finding]:
    """Reasons that are no template, or that quote what was not to be read."""
    visible = [*twins.visible, *map(flat, twins.visible), *twins.faults]
    for turn in turns:
        reason = turn.reason.removesuffix(CASCADE)
        if reason in PLAIN_REASONS or COUNTED.fullmatch(reason):
            continue
        differs = DIFFERS.fullmatch(reason)
        if differs is not None:  # names of attributes and of classes, never a value of one
            names = differs[1].split(", ")
            if names[-1].endswith("..."):  # it was cut to length
                cut = names.pop().removesuffix("...")
                names += [next((one for one in secrets.attributes if one.startswith(cut)), cut)]
            if not secrets.attributes.issuperset(names):
                yield Finding("reason", secrets.task_id, differs[1], turn.reason)
            continue
        if not _quotes_what_was_said(secrets.task, twins, reason):
            yield Finding("reason", secrets.task_id, "", turn.reason)
        for value in secrets.values_in(reason, visible):
            yield Finding("value", secrets.task_id, value, turn.reason)


def _quotes_what_was_said(task: BfclTask, twins: Twins, reason: str) -> bool:
    """A reason that is a fixed sentence but for a quote of the episode's own."""
    if reason.startswith(UNREADABLE):
        quote = reason.removeprefix(UNREADABLE).removesuffix("...")
        return any(flat(one).startswith(quote) for one in twins.faults)
    docs = task.docs_at(len(task.turns))
    for name in {call.name for call in twins.calls}:
        rest = reason.removeprefix(repr(name[:120]))
        if rest == reason:
            continue
        if rest in OF_A_CALL:
            return True
        if rest.startswith(ERROR):
            quote = rest.removeprefix(ERROR).removesuffix("...")
            return any(flat(one).startswith(quote) for one in twins.visible)
        if rest.startswith(WRONG_ARGUMENTS):
            names = [*paths_of_doc(docs[name]["function"]["parameters"])]
            for call in twins.calls:
                names += paths_of_value(call.arguments) if call.name == name else ()
            return skeleton(rest.removeprefix(WRONG_ARGUMENTS), names) in VIOLATIONS
    return False


# ---- playing -------------------------------------------------------------------------------


def trajectories(task: BfclTask, every: int, drawn: int) -> Iterator[Said]:
    """The reference, known failures (one in `every`), and seeded mutations of the reference."""
    program = reference_calls(task)
    yield _written([[calls] if calls else [] for calls in program])
    first = int(task.task_id.rpartition("_")[2]) % every
    for case in itertools.islice(known_failures(task, seed=0), first, None, every):
        yield case.messages
    material = Material([*task.docs_at(len(task.turns)).values()], {})
    for seed in range(drawn):
        yield _written(draw(program, material, random.Random(f"{seed} {task.task_id}")).turns)


def _written(turns: Iterable[Iterable[Sequence[ToolCall]]]) -> Said:
    return [[render_calls(step, "hermes") or ANSWER for step in steps] for steps in turns]


@dataclass
class Tally:
    """What was looked at."""

    added: Counter[str]
    """Pieces of added text, by kind."""
    hidden: dict[str, int]
    """Values of each task's reference that are not to be read when its first episode opens."""
    episodes: int = 0
    """Episodes through an interface that were played and compared."""
    replies: int = 0
    """Their replies: each was the same without a reference."""
    reasons: int = 0
    """Reasons of their labels."""


def nothing_yet() -> Tally:
    return Tally(Counter(), {})


def play(
    secrets: Secrets,
    interface: Interface,
    said: Said,
    tally: Tally,
    tools: Any = "structured",
    episode: type[BfclEpisode] = BfclEpisode,
) -> Iterator[Finding]:
    """Play one trajectory and name every rule that is broken."""
    task = secrets.task
    twins = Twins(task, interface, tools, episode)
    heard: list[str] = []
    try:
        for added in played(twins, said, heard):
            if task.task_id not in tally.hidden:
                tally.hidden[task.task_id] = secrets.hidden(twins.visible)
            tally.added[added.kind] += 1
            yield from secrets.findings(added, twins.visible)
    except NotBegun as fault:
        yield Finding("begun", task.task_id, "", str(fault))
        return
    blind = episode(without_reference(task), EpisodeOptions("train", interface, tools=tools))
    wire: list[CreateReply | StepReply] = [blind.open()]
    wire += [blind.step({"role": "assistant", "content": text}) for text in heard]
    for with_it, without in zip(twins.wire, wire, strict=True):
        if with_it != without:
            yield Finding("reference", task.task_id, "", str(with_it))
    turns = twins.shown.evaluate().diagnosis
    yield from reason_findings(secrets, twins, turns)
    tally.episodes += 1
    tally.replies += len(wire)
    tally.reasons += len(turns)


def played(twins: Twins, said: Said, heard: list[str]) -> Iterator[Added]:
    """Added texts; `heard` gets what was said, answers that end a turn included."""
    yield from twins.open()
    for turn, messages in enumerate(said):
        for text in (*messages, ANSWER):
            if not twins.over and twins.turn == turn:
                heard.append(text)
                yield from twins.say(text)


def play_all(tasks: Iterable[BfclTask], every: int, drawn: int) -> Tally:
    """Play trajectories of tasks, one interface after the other; assert that nothing is found."""
    tally = nothing_yet()
    found: list[Finding] = []
    interfaces = itertools.cycle(INTERFACES)
    for task in tasks:
        secrets = Secrets(task)
        for index, said in enumerate(trajectories(task, every, drawn)):
            tools = "structured" if index else "prompt"
            found += play(secrets, next(interfaces), said, tally, tools)
    assert not found, (len(found), found[:5])
    LOG.info("%s, %d values", replace(tally, hidden={}), sum(tally.hidden.values()))
    return tally

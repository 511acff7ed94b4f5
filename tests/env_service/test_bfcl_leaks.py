"""No text that the learning interface adds tells anything of a task's reference.

Two episodes take the same steps side by side. One is of mode "train", with every part of the
interface on; the other is of mode "eval", on a copy of the task that has no reference, so that what
it shows cannot come from one. What the first shows beyond the second is the added text. Of each
piece of it:

- begun: it follows what the second shows, which stands before it unchanged.
- value: it holds no argument value of the reference that was not to be read before: in what the
  second has shown so far or in what the policy itself has said.
- name: it names no tool but what the call at hand, or the doc that is marked, names itself.
- template: without what it quotes of call and doc, it is one of a finite set of sentences, the same
  for every task.

And, which covers what no list of rules thinks of (reference): what goes over the wire at /create
and /step is the same without the reference. Reasons of /evaluate are checked apart (reason): the
trainer gets them, the policy does not.
"""

import ast
import copy
import functools
import itertools
import json
import logging
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from bfcl_eval.constants.default_prompts import (
    DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_PROMPTING,
)
from known_failures import ANSWER, known_failures
from mutations import Material, draw

from env_service.environments.base import EpisodeOptions
from env_service.environments.bfcl.episode import BfclEpisode
from env_service.environments.bfcl.execution import ToolExecutor
from env_service.environments.bfcl.tasks import BfclTask, load_tasks, reference_calls
from env_service.environments.bfcl.tool_classes import tool_names
from env_service.environments.dialogue import FEEDBACK_NAME
from env_service.replies import CreateData, StepData, create_data, step_data
from seal.coevolution import texts
from seal.coevolution.diagnosis import CallEvidence
from seal.coevolution.interface import Interface, InterfaceConfig
from seal.coevolution.labels import FAILURES, Label
from seal.formats import ParseFault, ToolCall, parse, render_calls
from seal.wire import Message, ToolDoc, TurnDiagnosis

LOG = logging.getLogger(__name__)
SOME_TASKS = [*load_tasks().values()][::53]

SHOWN_AT_ONCE = InterfaceConfig().max_guidelines
INTERFACES = [
    Interface(7, True, True, True, (*FAILURES, *FAILURES)[first : first + SHOWN_AT_ONCE])
    for first in range(len(FAILURES))
]
"""Everything on; between them they show each guideline in each place."""

Said = Sequence[Sequence[str]]
"""What the assistant says in each turn."""

# ---- the sentences, the same for every task ------------------------------------------------

NOTE_LINES = {
    "",
    texts.SCHEMA_NOTE,
    texts.AFFORDANCE_NOTE,
    texts.GUIDELINES_HEAD,
    *(f"- {sentence}" for sentence in texts.GUIDELINES.values()),
}
TYPES = ("a boolean", "an integer", "a number", "a string", "an array", "an object", "null")
MARKS = {
    f"{mark}{cue}"
    for mark in (texts.REQUIRED_MARK, texts.OPTIONAL_MARK)
    for cue in (
        "",
        *(f" {texts.TYPE_MARK.format(kind)}" for kind in TYPES),
        *(
            f" {texts.TYPE_MARK.format(f'{kind}, each item {item}')}"
            for kind in TYPES
            for item in TYPES
        ),
    )
}
VIOLATIONS = {
    "missing required argument NAME",
    "unknown argument NAME",
    "argument NAME must be TYPE, got TYPE",
    "argument NAME is not one of the values that the tool allows",
}
HINTS = {
    texts.UNKNOWN_TOOL_HINT,
    texts.EXECUTION_HINT,
    *(
        texts.ARGUMENT_HINT.format("; ".join(some))
        for count in (1, 2, 3)
        for some in itertools.product(sorted(VIOLATIONS), repeat=count)
    ),
}
FIXED = "\n".join(
    [*NOTE_LINES, *texts.SCHEMA_TEXTS, *texts.RECOVERY_TEXTS, *TYPES, *VIOLATIONS]
).casefold()
FIXED_WORDS = {*re.findall(r"\w+", FIXED)}
TYPE_WORDS = re.compile("|".join(map(re.escape, TYPES)))
NUMBERS = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?!\w)")
UPDATE_TAIL = DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_PROMPTING.removeprefix("{functions}")


@dataclass(frozen=True)
class Added:
    """One piece of text that the interface has added."""

    kind: str
    """Where: note, marks, revealed marks, hint, parse feedback."""
    text: str
    """The piece."""
    quotable: str
    """What it may name tools of: the message and the doc at hand."""
    is_template: bool
    """Without what it quotes, it is one of the fixed sentences."""


@dataclass(frozen=True)
class Finding:
    """A rule that a text breaks."""

    rule: str
    """begun, value, name, template, reason."""
    task_id: str
    what: str
    """The value, the name or the place."""
    text: str


def skeleton(phrases: str, names: Iterable[str]) -> str:
    """Phrases of violated rules without what they quote."""
    for name in sorted(map(repr, names), key=len, reverse=True):
        phrases = phrases.replace(name, "NAME")
    return TYPE_WORDS.sub("TYPE", phrases)


def paths_of_doc(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Names of a doc's arguments as phrases write them: a, a.b, a[]."""
    yield path
    for name, field in schema.get("properties", {}).items():
        yield from paths_of_doc(field, f"{path}.{name}" if path else name)
    if isinstance(schema.get("items"), dict):
        yield from paths_of_doc(schema["items"], f"{path}[]")


def paths_of_value(value: Any, path: str = "") -> Iterator[str]:
    """Names of a call's arguments as phrases write them, cut as they cut them."""
    yield path
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from paths_of_value(inner, f"{path}.{name[:60]}" if path else name[:60])
    elif isinstance(value, list):
        for inner in value:
            yield from paths_of_value(inner, f"{path}[]")


def leaves(value: Any) -> Iterator[Any]:
    """Values inside lists and objects, and names inside objects."""
    if isinstance(value, dict):
        yield from value
        value = [*value.values()]
    if isinstance(value, list):
        for inner in value:
            yield from leaves(inner)
    else:
        yield value


class Secrets:
    """What of a task's reference a text could give away."""

    def __init__(self, task: BfclTask) -> None:
        self.task = task
        self.task_id = task.task_id
        self.program = reference_calls(task)
        arguments = (call.arguments.values() for calls in self.program for call in calls)
        values = [one for some in arguments for value in some for one in leaves(value)]
        self.strings = {one for one in values if isinstance(one, str) and len(one) >= 3}
        self.numbers = {float(one) for one in values if type(one) in (int, float)}
        self.tools = {name for owner in task.involved_classes for name in tool_names(owner)}

    @functools.cached_property
    def attributes(self) -> set[str]:
        """Public attributes of the task's tool classes, and the classes: no secrets."""
        instances = ToolExecutor(self.task).instances
        names = {f"{owner}.{name}" for owner, one in instances.items() for name in vars(one)}
        return names | {*instances}

    def hidden(self, visible: Sequence[str]) -> int:
        """How many of its values stand in no visible text."""
        strings = sum(not any(value in shown for shown in visible) for value in self.strings)
        return strings + len(self.numbers.difference(*map(numbers_in, visible)))

    def values_in(self, text: str, visible: Sequence[str]) -> list[str]:
        """Values of the reference in a text that stand in no visible one."""
        folded = text.casefold()
        found = [
            value
            for value in self.strings
            if is_token(value.casefold(), folded)
            and not is_token(value.casefold(), FIXED)
            and not any(value in shown for shown in visible)
        ]
        numbers = self.numbers & numbers_in(text)
        if numbers:
            numbers = numbers.difference(*map(numbers_in, visible))
        return [*found, *map(str, numbers)]

    def findings(self, added: Added, visible: Sequence[str]) -> Iterator[Finding]:
        """The rules that a piece of added text breaks."""
        if not added.is_template:
            yield Finding("template", self.task_id, added.kind, added.text)
        for value in self.values_in(added.text, visible):
            yield Finding("value", self.task_id, value, added.text)
        named = self.tools & {*re.findall(r"\w+", added.text)} - FIXED_WORDS
        for name in named.difference(re.findall(r"\w+", added.quotable)):
            yield Finding("name", self.task_id, name, added.text)


def is_token(value: str, text: str) -> bool:
    """Whether a value stands in a text, and not within a word."""
    return value in text and bool(re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text))


def numbers_in(text: str) -> set[float]:
    """Numbers that stand alone in a text."""
    return {*map(float, NUMBERS.findall(text))}


# ---- docs and their marks ------------------------------------------------------------------


class NotBegun(Exception):
    """What is shown is not what the benchmark shows, plus something."""


@dataclass(frozen=True)
class Marked:
    """A doc and what was added to it."""

    plain: ToolDoc
    shown: ToolDoc
    text: str
    marks: tuple[str, ...]
    are_templates: bool


class Docs:
    """Takes marks off docs; each doc once, as all tasks share them."""

    def __init__(self) -> None:
        self._known: dict[int, Marked] = {}

    def marked(self, plain: Sequence[ToolDoc], shown: Sequence[ToolDoc]) -> list[Marked]:
        """Docs of the benchmark beside what the policy is shown of them."""
        if len(plain) != len(shown):
            raise NotBegun(f"{len(plain)} docs became {len(shown)}")
        return [self._one(*pair) for pair in zip(plain, shown, strict=True)]

    def _one(self, plain: ToolDoc, shown: ToolDoc) -> Marked:
        known = self._known.get(id(plain))
        if known is None or known.plain is not plain or known.shown != shown:
            marks = [*_marks(plain, shown, "")]
            text = json.dumps(plain, ensure_ascii=False)
            good = all(is_template for _, is_template in marks)
            known = Marked(plain, shown, text, tuple(mark for mark, _ in marks), good)
            self._known[id(plain)] = known
        return known


def _marks(plain: Any, shown: Any, place: str) -> Iterator[tuple[str, bool]]:
    """Marks, and whether each is a template; all else in the doc must be as it was."""
    if isinstance(plain, dict) and isinstance(shown, dict):
        changed = [key for key in shown if key not in plain or plain[key] != shown[key]]
        for key in {*plain, *changed}:
            old, new = plain.get(key), shown.get(key)
            if key == "description" and isinstance(new, str) and ".properties." in place:
                before = (old or "").strip()
                if not new.startswith(before):
                    raise NotBegun(f"{place}.{key}: {old!r} became {new!r}")
                added = new.removeprefix(before)
                enum = texts.ENUM_MARK.format(", ".join(map(repr, plain.get("enum", ()))))
                rest = added.removesuffix(f" {enum}") if "enum" in plain else added
                yield added, rest.strip() in MARKS
            elif key in changed or key not in shown:
                yield from _marks(old, new, f"{place}.{key}")
    elif isinstance(plain, list) and isinstance(shown, list) and len(plain) == len(shown):
        for old, new in zip(plain, shown, strict=True):
            yield from _marks(old, new, f"{place}[]")
    elif plain != shown:
        raise NotBegun(f"{place}: {plain!r} became {shown!r}")


# ---- two episodes side by side -------------------------------------------------------------


def without_reference(task: BfclTask) -> BfclTask:
    """The same task, and nothing to follow or to tell."""
    return replace(task, reference=tuple(() for _ in task.reference))


class Twins:
    """An episode through an interface, and beside it the benchmark without a reference."""

    def __init__(
        self, task: BfclTask, interface: Interface, tools: Any, episode: type[BfclEpisode]
    ) -> None:
        self._task = task
        self._plain = BfclEpisode(without_reference(task), EpisodeOptions(tools=tools))
        self.shown = episode(task, EpisodeOptions("train", interface, tools=tools))
        self.wire: list[CreateData | StepData] = []
        """What the service would send of the episode through the interface."""
        self.visible: list[str] = []
        """What was to be read so far without the interface, and what the policy has said."""
        self.calls: list[ToolCall] = []
        """Calls that could be read."""
        self.faults: list[str] = []
        """Why others could not."""
        self.turn, self.over = 0, False

    def open(self) -> list[Added]:
        """Open both."""
        plain, shown = self._plain.open(), self.shown.open()
        self.wire.append(create_data(shown, "i", self._task.task_id, "train"))
        agree = plain.category == shown.category and plain.interface_version == 0
        system, *others = shown.state
        note = system["content"]
        plain_docs, shown_docs = [*plain.tools], [*shown.tools]
        plain_state = plain.state
        if not plain.tools:  # docs are text, in the system message
            before, plain_docs, after = _prompt(plain.state[0]["content"])
            noted, shown_docs, shown_after = _prompt(note)
            agree = agree and noted.endswith(f"\n\n{before}") and after == shown_after
            note = noted.removesuffix(f"\n\n{before}")
            self.visible.append(plain.state[0]["content"])
            plain_state = plain.state[1:]
        if not agree or list(plain_state) != others:
            raise NotBegun("the opening")
        self.visible += [message["content"] for message in plain_state]
        is_template = {*note.split("\n")} <= NOTE_LINES
        return [Added("note", note, "", is_template), *self._marks("marks", plain_docs, shown_docs)]

    def say(self, text: str) -> list[Added]:
        """Say the same to both."""
        said = parse(text, "hermes")
        docs = self._task.docs_at(self.turn)
        shown = self.shown.step({"role": "assistant", "content": text})
        self.wire.append(step_data(shown, len(self.wire)))
        self.visible.append(text)
        values = (value for call in said.calls for value in leaves(call.arguments))
        self.visible += [value for value in values if isinstance(value, str)]
        self.calls += said.calls
        self.faults += [fault.reason for fault in said.faults]
        state = [*shown.state]
        added = []
        if said.faults:
            # The benchmark has no such message, and takes one with faults alone for an answer.
            place = len(said.calls)
            added.append(_parse_feedback(state.pop(place), text, said.faults))
        if said.calls or not said.faults:
            plain = self._plain.step({"role": "assistant", "content": text})
            if replace(plain, state=()) != replace(shown, state=()):
                raise NotBegun(f"{plain} became {shown}")
            added += self._compare(text, said.calls, plain.state, state, docs)
        elif state or (shown.turn, shown.terminated) != (self.turn, False):
            raise NotBegun(f"{shown} after a message that cannot be read")
        self.turn, self.over = shown.turn, shown.terminated
        return added

    def _compare(
        self,
        text: str,
        calls: Sequence[ToolCall],
        plain: Sequence[Message],
        shown: Sequence[Message],
        docs: Mapping[str, ToolDoc],
    ) -> Iterator[Added]:
        if len(plain) != len(shown):
            raise NotBegun(f"{plain} became {shown}")
        self.visible += [message["content"] for message in plain]
        for place, (old, new) in enumerate(zip(plain, shown, strict=True)):
            if old == new:
                continue
            if {**old, "content": ""} != {**new, "content": ""}:
                raise NotBegun(f"{old} became {new}")
            if old["role"] == "user":
                yield from self._revealed(old["content"], new["content"])
                continue
            call = calls[place]
            hint = new["content"].removeprefix(f"{old['content']}\n")
            if hint == new["content"]:
                raise NotBegun(f"{old} became {new}")
            doc = docs.get(call.name)
            names = [*paths_of_value(call.arguments)]
            names += paths_of_doc(doc["function"]["parameters"]) if doc else []
            yield Added("hint", hint, text + json.dumps(doc), skeleton(hint, names) in HINTS)

    def _revealed(self, plain: str, shown: str) -> list[Added]:
        if not (plain.endswith(UPDATE_TAIL) and shown.endswith(UPDATE_TAIL)):
            raise NotBegun(f"{plain} became {shown}")
        old, new = (
            [{"function": one} for one in ast.literal_eval(text.removesuffix(UPDATE_TAIL))]
            for text in (plain, shown)
        )
        return self._marks("revealed marks", old, new)

    def _marks(self, kind: str, plain: Sequence[ToolDoc], shown: Sequence[ToolDoc]) -> list[Added]:
        marked = DOCS.marked(plain, shown)
        self.visible += [one.text for one in marked]
        return [
            Added(kind, "\n".join(one.marks), one.text, one.are_templates)
            for one in marked
            if one.marks
        ]


DOCS = Docs()


def _prompt(content: str) -> tuple[str, list[ToolDoc], str]:
    """What stands before the docs, the docs, what stands after them."""
    before, _, rest = content.partition("<tools>\n")
    lines, _, after = rest.partition("\n</tools>")
    return before, [json.loads(line) for line in lines.split("\n")], after


def _parse_feedback(message: Message, text: str, faults: Sequence[ParseFault]) -> Added:
    """Reasons are the parser's, which sees nothing but the message."""
    reasons = [*dict.fromkeys(fault.reason[:200] for fault in faults)][:3]
    rest = {"role": "tool", "name": FEEDBACK_NAME}
    is_template = message == {**rest, "content": texts.PARSE_HINT.format("; ".join(reasons))}
    return Added("parse feedback", message["content"], text, is_template)


# ---- reasons -------------------------------------------------------------------------------

PLAIN_REASONS = {
    "the reference program failed on this turn",
    "no tool was called, and the turn needs none",
    "state and responses are what the verifier expects",
    "the turn was answered without a call, but it needs one",
    "the step limit was hit before the turn was answered",
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
COUNTED = re.compile(r"the state is right, but results are missing: \d+")
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
        for added in _played(twins, said, heard):
            if task.task_id not in tally.hidden:
                tally.hidden[task.task_id] = secrets.hidden(twins.visible)
            tally.added[added.kind] += 1
            yield from secrets.findings(added, twins.visible)
    except NotBegun as fault:
        yield Finding("begun", task.task_id, "", str(fault))
        return
    blind = episode(without_reference(task), EpisodeOptions("train", interface, tools=tools))
    wire: list[CreateData | StepData] = [create_data(blind.open(), "i", task.task_id, "train")]
    for text in heard:
        wire.append(step_data(blind.step({"role": "assistant", "content": text}), len(wire)))
    for with_it, without in zip(twins.wire, wire, strict=True):
        if with_it != without:
            yield Finding("reference", task.task_id, "", str(with_it))
    turns = twins.shown.evaluate().turns
    yield from reason_findings(secrets, twins, turns)
    tally.episodes += 1
    tally.replies += len(wire)
    tally.reasons += len(turns)


def _played(twins: Twins, said: Said, heard: list[str]) -> Iterator[Added]:
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
    said = [[BROKEN, WRONG, ANSWER]]
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
    [*_played(twins, [[WRONG, ANSWER]], [])]
    assert [*reason_findings(LEAKED, twins, twins.shown.evaluate().turns)] == []
    assert [*reason_findings(LEAKED, twins, [TurnDiagnosis(0, "any", reason, None)])]

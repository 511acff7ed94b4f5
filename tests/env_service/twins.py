"""An episode through the learning interface, and beside it the benchmark without a reference.

In: a task, an interface, then messages that both get. Out: what the first shows beyond the second,
as pieces of added text (`leaks.Added`). The second episode is of a copy of the task that has no
reference, so that what it shows cannot come from one.
"""

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bfcl_eval.constants.default_prompts import (
    DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_PROMPTING,
)
from leaks import HINTS, MARKS, NOTE_LINES, Added, leaves, paths_of_doc, paths_of_value, skeleton

from env_service.environments.base import EpisodeOptions
from env_service.environments.bfcl.episode import BfclEpisode
from env_service.environments.bfcl.tasks import BfclTask
from env_service.environments.dialogue import FEEDBACK_NAME
from seal.coevolution import texts
from seal.coevolution.interface import Interface
from seal.formats import ParseFault, ToolCall, parse
from seal.wire import CreateReply, Message, StepReply, ToolDoc

UPDATE_TAIL = DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_PROMPTING.removeprefix("{functions}")

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
        self.wire: list[CreateReply | StepReply] = []
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
        self.wire.append(shown)
        agree = plain.info.category == shown.info.category and plain.info.interface_version == 0
        system, *others = shown.state
        note = system["content"]
        plain_docs, shown_docs = [*plain.info.tools], [*shown.info.tools]
        plain_state = plain.state
        if not plain.info.tools:  # docs are text, in the system message
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
        self.wire.append(shown)
        self.visible.append(text)
        values = (value for call in said.calls for value in leaves(call.arguments))
        self.visible += [value for value in values if isinstance(value, str)]
        self.calls += said.calls
        self.faults += [fault.reason for fault in said.faults]
        state = [*shown.state]
        added = []
        plain = self._plain.step({"role": "assistant", "content": text})
        if _led_to(plain) != _led_to(shown):
            raise NotBegun(f"{plain} became {shown}")
        # The benchmark has no such message. After the last turn there is no place for it.
        if said.faults and (said.calls or not shown.is_terminated):
            added.append(_parse_feedback(state.pop(len(said.calls)), text, said.faults))
        added += self._compare(text, said.calls, plain.state, state, docs)
        self.turn, self.over, _ = _led_to(shown)
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


def _led_to(reply: StepReply) -> tuple[int, bool, bool]:
    """The turn, the episode's end and its truncation; the number of the step may differ."""
    return reply.info.turn, reply.is_terminated, reply.info.truncated


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

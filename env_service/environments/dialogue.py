"""The dialogue protocol that every environment of this service shares.

In: assistant messages, one a step. Out: tool results, the next turn's user messages, the end mark,
and finally a verdict with one label a turn. A subclass supplies the task's turns, the docs, the
execution of tools and the verification (`toy` is the smallest one). It never sees an assistant
message or the interface.

A turn ends with an assistant message that holds no readable call. Whether a message that holds only
broken calls ends it, too, is a rule of the episode (`EpisodeOptions.unreadable_message`). The
learning interface never decides it: with and without it, a policy plays the same game. The
interface's hint on broken calls stands with the next observation. The episode ends if a turn has
more steps than the limit. A client ends it when its policy is out of tokens, and says so in
/evaluate. In mode "eval" no method of the interface is called.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from env_service.environments.base import (
    BadExitStatus,
    BadMessage,
    CallStopped,
    EpisodeOptions,
    EpisodeOver,
    Stop,
    unwatched,
)
from env_service.environments.prompt import tool_prompt
from seal.coevolution.diagnosis import CallEvidence, FaultEvidence, TurnEvidence, diagnose
from seal.coevolution.schema import schema_violations
from seal.formats import ParsedMessage, ParseFault, ToolCall, parse, parse_structured
from seal.wire import (
    CONVERSATION_COMPLETED,
    CreateReply,
    EpisodeInfo,
    EvaluateReply,
    ExitStatus,
    Message,
    StepInfo,
    StepReply,
    TokenLimit,
    ToolDoc,
    TurnProgress,
)

FEEDBACK_NAME = "tool_call_parser"
"""Name on the tool message that tells the policy about an unreadable call."""

LONGEST_RESULT = 1_000_000
"""Characters that the results of one message may have; the call that exceeds them is stopped."""

_UNREADABLE = "Error: a tool call could not be read and was not run. Tools that may be called: {}"
_STOPPED = "Error during execution: the call was stopped, {}"
_NOT_RUN = "Error during execution: not run, as an earlier call of the message was stopped"


@dataclass(frozen=True)
class StepRecord:
    """What one assistant message asked for."""

    calls: tuple[ToolCall, ...]
    """Readable calls, in order; all of them were answered."""
    faults: tuple[ParseFault, ...]
    """Unreadable calls."""
    stop: Stop | None = None
    """The call that a limit stopped, if any."""


@dataclass(frozen=True)
class ToolResult:
    """What one call returned."""

    text: str
    """The observation."""
    error: str | None
    """The same text if it reports an error, else None."""


def run_calls(
    record: StepRecord,
    execute: Callable[[ToolCall], ToolResult],
    before_call: Callable[[int], None] = unwatched,
) -> Iterator[tuple[ToolCall, ToolResult]]:
    """Run the calls of a step one by one, except those that a limit has stopped.

    Raises:
        CallStopped: A call took too much memory, or its result was too long.
    """
    length = 0
    for index, call in enumerate(record.calls):
        if record.stop is not None and index >= record.stop.call:
            first = index == record.stop.call
            text = _STOPPED.format(record.stop.reason) if first else _NOT_RUN
            yield call, ToolResult(text, text)
            continue
        before_call(index)
        try:
            result = execute(call)
        except MemoryError:
            stop = Stop(index, "as it took too much memory")
            raise CallStopped(stop, of_memory=True) from None
        length += len(result.text)
        if length > LONGEST_RESULT:
            reason = f"as the results of the message have over {LONGEST_RESULT} characters"
            raise CallStopped(Stop(index, reason))
        yield call, result


@dataclass(frozen=True)
class Verdict:
    """An environment's judgement of an episode."""

    accuracy: float
    """Terminal reward: 1.0 or 0.0."""
    evidence: tuple[TurnEvidence, ...]
    """One entry for each turn that began, for the diagnosis."""
    progress: TurnProgress
    """How many of the task's turns passed; see `turn_progress`."""


def turn_progress(
    scorable: Sequence[bool], checked: Sequence[tuple[TurnEvidence, bool]]
) -> TurnProgress:
    """Count a task's turns.

    Args:
        scorable: For each turn of the task, whether the reference calls tools.
        checked: For each turn that began, its evidence and whether the checks of a turn accept it.
    """
    passed = sum(turn.reference_calls and accepted for turn, accepted in checked)
    abstained = sum(
        not (turn.reference_calls or turn.calls or turn.parse_faults or turn.truncated)
        for turn, _ in checked
    )
    return TurnProgress(
        scorable=sum(scorable),
        scorable_passed=passed,
        abstention=len(scorable) - sum(scorable),
        abstention_passed=abstained,
    )


class TurnDialogue(ABC):
    """One live episode; a plain synchronous object.

    Args:
        task_id: The task.
        category: Its category.
        options: How the policy is shown the episode.
        step_limit: Steps with calls that a turn may have; one more ends the episode.
    """

    def __init__(
        self, task_id: str, category: str, options: EpisodeOptions, step_limit: int
    ) -> None:
        self._task_id = task_id
        self._category = category
        self._options = options
        self._interface = options.interface if options.mode == "train" else None
        self._step_limit = step_limit
        self._records: list[list[StepRecord]] = [[]]  # one list for each open turn
        self._over = False
        self._truncated = False

    @abstractmethod
    def turn_count(self) -> int:
        """Number of turns of the task."""

    @abstractmethod
    def user_messages(self, turn: int, revealed: Sequence[ToolDoc]) -> Sequence[Message]:
        """Messages that open a turn; `revealed` are its revealed_docs as the policy sees them."""

    @abstractmethod
    def docs(self) -> Sequence[ToolDoc]:
        """Docs that the policy sees from the start."""

    def revealed_docs(self, turn: int) -> Sequence[ToolDoc]:
        """Docs that a turn adds; none by default."""
        return ()

    @abstractmethod
    def available_docs(self, turn: int) -> Mapping[str, ToolDoc]:
        """Docs, by name, of the tools that may be called in a turn."""

    @abstractmethod
    def execute(self, call: ToolCall, turn: int) -> ToolResult:
        """Run a call on the live state; a tool that may not be called returns an error."""

    @abstractmethod
    def verify(self, turns: Sequence[Sequence[StepRecord]], truncated: bool) -> Verdict:
        """Judge the turns in which the assistant has spoken, on a separate state."""

    def open(self, instance_id: str = "") -> CreateReply:
        """The messages that open the dialogue, and the tool docs; see `Episode.open`."""
        docs = self._shown(self.docs())
        parts = []
        if self._interface is not None:
            note = self._interface.system_note()
            parts = [note] if note is not None else []
        structured = self._options.tools == "structured"
        if not structured:
            parts.append(tool_prompt(docs, self._options.tool_format))
        system = [{"role": "system", "content": "\n\n".join(parts)}] if parts else []
        info = EpisodeInfo(
            tools=tuple(docs) if structured else (),
            category=self._category,
            interface_version=self._options.interface_version,
            instance_id=instance_id,
            task_id=self._task_id,
            mode=self._options.mode,
        )
        return CreateReply(state=(*system, *self._turn_messages(0)), info=info)

    def step(
        self,
        message: Message,
        stop: Stop | None = None,
        before_call: Callable[[int], None] = unwatched,
    ) -> StepReply:
        """Take one assistant message and return what follows it."""
        if self._over:
            raise EpisodeOver("the episode has ended; evaluate or release it")
        turn = len(self._records) - 1
        read = _read(message, self._options.tool_format, self.available_docs(turn))
        calls = [(call, call_id) for parsed, call_id in read for call in parsed.calls]
        faults = [(fault, call_id) for parsed, call_id in read for fault in parsed.faults]
        steps = self._records[turn]
        record = StepRecord(
            tuple(call for call, _ in calls), tuple(fault for fault, _ in faults), stop
        )
        steps.append(record)
        results = run_calls(record, lambda call: self.execute(call, turn), before_call)
        state = [
            self._observe(call, result, call_id, turn, len(steps) - 1)
            for (call, result), (_, call_id) in zip(results, calls, strict=True)
        ]
        feedback = self._parse_feedback(faults, turn)
        if not state and (not faults or self._options.unreadable_message == "ends_turn"):
            return self._next_turn(feedback)
        state += feedback
        if len(steps) > self._step_limit:
            self._truncated = True
            return self._end(state)
        return self._reply(state)

    def evaluate(self, exit_status: ExitStatus | None = None) -> EvaluateReply:
        """Judge the episode as it stands, without changing it; see `Episode.evaluate`."""
        out_of_tokens = self._out_of_tokens(exit_status)
        begun = [tuple(steps) for steps in self._records if steps]
        verdict = self.verify(begun, self._truncated)
        evidence = list(verdict.evidence)
        if out_of_tokens and self._records[-1]:
            evidence[-1] = replace(evidence[-1], truncated=True)
        return EvaluateReply(
            accuracy=verdict.accuracy,
            diagnosis=tuple(map(diagnose, evidence)),
            interface_version=self._options.interface_version,
            truncated=self._truncated or out_of_tokens,
            task_id=self._task_id,
            category=self._category,
            progress=verdict.progress,
        )

    def _out_of_tokens(self, exit_status: ExitStatus | None) -> bool:
        """Whether the policy ran out of tokens; what the client says must fit the episode."""
        ended = "step_limit" if self._truncated else "completed"
        possible = (ended,) if self._over else get_args(TokenLimit)
        if exit_status is not None and exit_status not in possible:
            state = "has ended" if self._over else "goes on"
            raise BadExitStatus(
                f"params.exit_status is {exit_status!r}, but the episode {state}: expected "
                f"{' or '.join(possible)}, or none"
            )
        return exit_status is not None and not self._over

    def _next_turn(self, feedback: Sequence[Message]) -> StepReply:
        turn = len(self._records)
        if turn == self.turn_count():
            return self._end([])
        self._records.append([])
        return self._reply([*feedback, *self._turn_messages(turn)])

    def _end(self, state: Sequence[Message]) -> StepReply:
        self._over = True
        return self._reply([*state, {"role": "user", "content": CONVERSATION_COMPLETED}])

    def _reply(self, state: Sequence[Message]) -> StepReply:
        info = StepInfo(
            turn=len(self._records) - 1,
            step=sum(map(len, self._records)) - 1,
            truncated=self._truncated,
        )
        return StepReply(state=tuple(state), is_terminated=self._over, info=info)

    def _turn_messages(self, turn: int) -> Sequence[Message]:
        return self.user_messages(turn, self._shown(self.revealed_docs(turn)))

    def _shown(self, docs: Sequence[ToolDoc]) -> Sequence[ToolDoc]:
        return docs if self._interface is None else self._interface.tool_docs(docs)

    def _observe(
        self, call: ToolCall, result: ToolResult, call_id: str | None, turn: int, step: int
    ) -> Message:
        content = result.text
        if result.error is not None and self._interface is not None:
            doc = self.available_docs(turn).get(call.name)
            hint = self._interface.call_feedback(call_evidence(step, call, doc, result.error))
            content = content if hint is None else f"{content}\n{hint}"
        return _tool_message(call.name, content, call_id)

    def _parse_feedback(
        self, faults: Sequence[tuple[ParseFault, str | None]], turn: int
    ) -> list[Message]:
        """What the policy is told about unreadable calls: by the environment, by the interface."""
        parts = []
        if faults and self._options.unreadable_message == "retry":
            parts.append(_UNREADABLE.format(", ".join(self.available_docs(turn))))
        if faults and self._interface is not None:
            hint = self._interface.parse_feedback([fault for fault, _ in faults])
            parts += [] if hint is None else [hint]
        return [_tool_message(FEEDBACK_NAME, "\n".join(parts), faults[0][1])] if parts else []


def call_evidence(
    step: int, call: ToolCall, doc: ToolDoc | None, error: str | None
) -> CallEvidence:
    """Evidence on one call; `doc` is the tool's own doc, None if it may not be called."""
    violations: tuple[str, ...] = ()
    if doc is not None:
        violations = schema_violations(call.arguments, doc["function"]["parameters"])
    return CallEvidence(step, call.name, doc is not None, violations, error)


def fault_evidence(steps: Sequence[StepRecord]) -> tuple[FaultEvidence, ...]:
    """Evidence on the unreadable calls of a turn."""
    return tuple(
        FaultEvidence(step, fault.reason, fault.tool)
        for step, record in enumerate(steps)
        for fault in record.faults
    )


def _read(
    message: Message, tool_format: str, docs: Mapping[str, ToolDoc]
) -> list[tuple[ParsedMessage, str | None]]:
    """The parsed parts of a message, each with the assistant's id of the call if it gave one."""
    role = message.get("role")
    if role != "assistant":
        raise BadMessage(f"a step takes one assistant message, got role {str(role)[:40]!r}")
    tool_calls = message.get("tool_calls")
    if not tool_calls:
        content = message.get("content")
        if not isinstance(content, str):
            raise BadMessage(
                f"content of an assistant message without tool_calls is "
                f"{type(content).__name__}, expected text"
            )
        return [(parse(content, tool_format, docs), None)]
    if not isinstance(tool_calls, list):
        raise BadMessage(f"tool_calls is {type(tool_calls).__name__}, expected a list")
    return [
        (parse_structured({"role": "assistant", "content": "", "tool_calls": [call]}), _id_of(call))
        for call in tool_calls
    ]


def _id_of(tool_call: object) -> str | None:
    call_id = tool_call.get("id") if isinstance(tool_call, dict) else None
    return call_id if isinstance(call_id, str) else None


def _tool_message(name: str, content: str, call_id: str | None) -> Message:
    message: Message = {"role": "tool", "name": name, "content": content}
    if call_id is not None:
        message["tool_call_id"] = call_id
    return message

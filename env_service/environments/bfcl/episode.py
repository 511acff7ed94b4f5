"""One live BFCL episode.

In: a task and how it is shown. Out: the dialogue as bfcl-eval's inference would lead it, with the
run's learning interface in mode "train". Turns, steps and feedback follow the protocol of
`env_service.environments.dialogue`; `verifier` judges.
"""

from collections.abc import Mapping, Sequence

from bfcl_eval.constants.default_prompts import (
    DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_PROMPTING,
    MAXIMUM_STEP_LIMIT,
)

from env_service.environments.base import EpisodeOptions
from env_service.environments.bfcl.execution import ToolExecutor
from env_service.environments.bfcl.tasks import BfclTask
from env_service.environments.bfcl.verifier import verify
from env_service.environments.dialogue import StepRecord, ToolResult, TurnDialogue, Verdict
from seal.formats import ToolCall
from seal.wire import Message, ToolDoc


class BfclEpisode(TurnDialogue):
    """A task with live tool instances. Opening one runs no tool."""

    def __init__(self, task: BfclTask, options: EpisodeOptions) -> None:
        super().__init__(task.task_id, task.category, options, MAXIMUM_STEP_LIMIT)
        self._task = task
        self._executor = ToolExecutor(task)
        self._docs = {turn: task.docs_at(turn) for turn in {0, *task.held_out_docs}}

    def turn_count(self) -> int:
        """Number of turns of the task."""
        return len(self._task.turns)

    def docs(self) -> Sequence[ToolDoc]:
        """Docs that the policy sees from the start."""
        return self._task.tools

    def revealed_docs(self, turn: int) -> Sequence[ToolDoc]:
        """Docs of the tools that are held out until this turn."""
        return self._task.held_out_docs.get(turn, ())

    def user_messages(self, turn: int, revealed: Sequence[ToolDoc]) -> Sequence[Message]:
        """The task's user messages, or the official sentence that reveals more functions."""
        if not revealed:
            return self._task.turns[turn]
        functions = [doc["function"] for doc in revealed]
        text = DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_PROMPTING.format(functions=functions)
        return [{"role": "user", "content": text}]

    def available_docs(self, turn: int) -> Mapping[str, ToolDoc]:
        """Docs, by name, of the tools that may be called in a turn."""
        return self._docs[max(reveal for reveal in self._docs if reveal <= turn)]

    def execute(self, call: ToolCall, turn: int) -> ToolResult:
        """Run a call on the live instances."""
        return self._executor.result(call, self.available_docs(turn).keys())

    def verify(self, turns: Sequence[Sequence[StepRecord]], truncated: bool) -> Verdict:
        """The official verdict, on separate instances."""
        return verify(self._task, turns, truncated)

"""What a run writes about its loop, as JSON lines under `experiments/<name>/loop/`.

* `rounds.jsonl`, one line for each training round: labels, C_t, the interface shown and evolved;
* `rollouts.jsonl`, one line for each rollout trained on: GRPO group, labels with their reasons,
  weights, tokens that the policy wrote (`policy_tokens`), tokens after the prompt with those of
  tools and user (`response_tokens`);
* `phases.jsonl`, a line each time the trainer begins something, and in long rollouts a line every
  few seconds in which more prompts have ended (`ended`, `of`), for the launcher's progress bar and
  watchdog. Its last line comes from the launcher and says how the run ended.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

from seal.records.json_lines import LineReader, append_json_lines, json_lines
from seal.records.whole_file import write_whole
from seal.wire import ExitStatus

ROUNDS = "rounds.jsonl"
PHASES = "phases.jsonl"
ROLLOUTS = "rollouts.jsonl"
DONE, FAILED, INTERRUPTED = "done", "failed", "interrupted"
"""Last phase of a run: how it ended. If the launcher was killed, the log has none of them."""
FAULT = "fault"
"""Phase of a trainer that can neither go on nor end by itself; its line says why (`said`)."""


class LoopLog:
    """Appends to a run's loop log; every line is complete on disk once written."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._phase: dict[str, Any] = {}

    def phase(self, name: str, step: int) -> None:
        """The trainer begins `name` (e.g. rollout, update, weight_transfer) of step `step`."""
        self._phase = {"phase": name, "step": step}
        self._append(PHASES, self._phase)

    def progress(self, ended: int, of: int) -> None:
        """In the present phase, the rollouts of `ended` prompts out of `of` have ended."""
        self._append(PHASES, {**self._phase, "ended": ended, "of": of})

    def fault(self, reason: str, step: int) -> None:
        """The run has to be ended; `reason` says why."""
        self._append(PHASES, {"phase": FAULT, "step": step, "said": reason})

    def end(self, how: str) -> None:
        """The run has ended, DONE, FAILED or INTERRUPTED, in the step that was begun last."""
        begun = list(LineReader(self._folder / PHASES).new())
        self.phase(how, begun[-1]["step"] if begun else 0)

    def round(self, record: dict[str, Any]) -> None:
        """One finished training round."""
        self._append(ROUNDS, record)

    def rollouts(self, records: Iterable[dict[str, Any]]) -> None:
        """The rollouts of a round."""
        self._append(ROLLOUTS, *records)

    def rewind(self, step: int) -> None:
        """Drop the lines of rounds after `step`: a resumed run makes these rounds again."""
        for path in (self._folder / ROUNDS, self._folder / ROLLOUTS):
            if path.exists():
                kept = (line for line in LineReader(path).new() if line["step"] <= step)
                write_whole(path, json_lines(kept))

    def _append(self, name: str, *records: dict[str, Any]) -> None:
        now = time.time()
        append_json_lines(self._folder / name, *({"time": now, **record} for record in records))


def group_of(uid: str) -> str:
    """The GRPO group (the id of the prompt) of a rollout: its uid without the last two numbers.

    >>> group_of("5f2c_0_0")
    '5f2c'
    """
    return uid.rsplit("_", 2)[0]


def mixed_group_share(groups: Mapping[str, Sequence[float]]) -> float:
    """Share of GRPO groups whose rewards differ. Only such groups move the policy.

    >>> mixed_group_share({"a": [0.0, 1.0], "b": [1.0, 1.0]})
    0.5
    """
    return fmean(len(set(rewards)) > 1 for rewards in groups.values())


def turns_by_label(labels: Mapping[str, Mapping[str, int]]) -> Counter[str]:
    """Turns by label in all categories together.

    >>> turns_by_label({"multi_turn_base": {"pass": 3}, "multi_turn_miss_func": {"pass": 1}})
    Counter({'pass': 4})
    """
    counts: Counter[str] = Counter()
    for by_label in labels.values():
        counts.update(by_label)
    return counts


def exit_shares(prefix: str, statuses: Sequence[str]) -> dict[str, float]:
    """Share of dialogues by why they ended, under `<prefix>/<exit status>`.

    >>> exit_shares("seal/exit", ["completed", "completed", "step_limit", "max_model_len"])
    {'seal/exit/completed': 0.5, 'seal/exit/step_limit': 0.25, 'seal/exit/response_length': 0.0, \
'seal/exit/max_model_len': 0.25}
    """
    counts = Counter(statuses)
    return {f"{prefix}/{name}": counts[name] / len(statuses) for name in get_args(ExitStatus)}

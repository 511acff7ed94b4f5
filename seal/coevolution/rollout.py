"""One rollout as everything behind the diagnosis takes it.

In: a finished episode; the agent loop makes a `Rollout` of it, which crosses verl's queue as JSON,
once. Out: what profile, weights, advantages, metrics and the loop log read.
"""

from dataclasses import asdict, dataclass
from typing import Any

from seal.labels import EXCLUDED, Label
from seal.wire import SYNTHETIC_PREFIX, ExitStatus, TurnDiagnosis


@dataclass(frozen=True)
class Rollout:
    """What is known about one rollout besides its tokens.

    Of the fields with a default, profile and weights read `interface_shown` alone.
    `seal.wire.from_json` reads what `to_json` gives, and a line of the loop log.
    """

    task_id: str
    """Task of the environment."""
    category: str
    """Category of the task."""
    reward: float
    """Terminal reward r in [0, 1] of the official verifier; exactly 1.0 is a full pass."""
    training_reward: float
    """The reward that the advantage is computed from: r, or the shaped reward (`shaping`)."""
    turns: tuple[TurnDiagnosis, ...]
    """Label and reason of each turn that was begun, in order: an index is a place in the dialogue.
    """
    interface_version: int = 0
    """Version of the interface that the policy was shown; 0 is the original benchmark."""
    interface_shown: bool = False
    """False: this rollout was shown no interface (`seal.exposure`)."""
    exit_status: ExitStatus = "completed"
    """Why it ended: by the policy, or by a limit."""
    environment_s: float = 0.0
    """Seconds spent waiting for the service."""
    turn_spans: tuple[tuple[int, int, int], ...] = ()
    """(turn, start, end) of each assistant message among the response tokens."""

    @property
    def synthetic(self) -> bool:
        """Whether its task is one of a pool, and none of the benchmark's own."""
        return self.task_id.startswith(SYNTHETIC_PREFIX)

    @property
    def truncated(self) -> bool:
        """Whether a limit ended the rollout."""
        return self.exit_status != "completed"

    @property
    def labels(self) -> tuple[Label, ...]:
        """The label of each turn."""
        return tuple(turn.label for turn in self.turns)

    def to_json(self) -> dict[str, Any]:
        """JSON values, for verl's extra fields and the loop log."""
        return {**asdict(self), "truncated": self.truncated}


def turn_mass(turn: TurnDiagnosis, cascade_share: float) -> float:
    """The mass of a turn: 0 with an excluded label, the share of a cascade, else 1."""
    if turn.label in EXCLUDED:
        return 0.0
    return float(cascade_share) if turn.cascade else 1.0

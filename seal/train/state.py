"""What the loop carries from one round to the next, and how it survives a restart.

In: the rollouts of a round. Out: the next state, and a file in verl's checkpoint. No
torch here.

A checkpoint of step k holds the profile C_k and the interface Omega_k that round k was shown. The
environment service makes Omega_{k+1} from the two, so a resumed run goes on with the same one.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from seal.coevolution.drawing import Drawing, steering_rollouts
from seal.coevolution.interface import INITIAL, Interface
from seal.coevolution.profile import (
    EMPTY,
    FailureProfile,
    ProfileHistory,
    ProfileWindow,
    profile_of,
)
from seal.coevolution.rollout import Rollout
from seal.coevolution.utilities import UtilityConfig, next_utilities
from seal.coevolution.weights import UTILITIES, WeightConfig
from seal.labels import Label
from seal.records.checkpoint_folder import Best
from seal.records.whole_file import write_whole
from seal.settings.sections import Seal
from seal.train.errors import TrainingError

FILE = "seal_state.json"
"""Name of the file in a checkpoint's folder."""


@dataclass(frozen=True)
class LoopState:
    """The loop after a round."""

    step: int = 0
    """The round; 0 before the first."""
    history: ProfileHistory = field(default_factory=ProfileHistory)
    """Profiles of the rounds in the window, and the total."""
    profile: FailureProfile = EMPTY
    """C_t: what the next interface is made from. It equals the window unless it is frozen."""
    shown: Interface = INITIAL
    """Omega_t: the interface that round t was shown."""
    utilities: Mapping[Label, float] = field(default_factory=lambda: dict(UTILITIES))
    """Diagnostic utilities of the next round's weights."""
    best: Best | None = None
    """The best validation so far, None before the first."""
    drawing: Drawing | None = None
    """What was drawn from the pool of synthetic tasks, and what is wanted; None without a pool."""

    def to_json(self) -> dict[str, Any]:
        """The state as JSON values."""
        return {
            "step": self.step,
            "history": self.history.to_json(),
            "profile": self.profile.to_json(),
            "shown": self.shown.to_json(),
            "utilities": {label.value: value for label, value in self.utilities.items()},
            "best": None if self.best is None else vars(self.best),
            "drawing": None if self.drawing is None else self.drawing.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "LoopState":
        """Read what `to_json` wrote.

        Raises:
            ValueError: A field is missing or of the wrong kind.
        """
        try:
            best = data["best"]
            # States were written without "drawing" before there were pools.
            drawing = data.get("drawing")
            return cls(
                step=int(data["step"]),
                history=ProfileHistory.from_json(data["history"]),
                profile=FailureProfile.from_json(data["profile"]),
                shown=Interface.from_json(data["shown"]),
                utilities={Label(name): float(v) for name, v in data["utilities"].items()},
                best=None if best is None else Best(**best),
                drawing=None if drawing is None else Drawing.from_json(drawing),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class LoopConfig(ProfileWindow):
    """How a round changes the state."""

    weights: WeightConfig
    """Base utilities, bounds, cascade share."""
    utilities: UtilityConfig
    """Whether the utilities move."""
    refresh: int | None = None
    """Rounds between new weights of the pool's tasks; None: they have no weights."""


def loop_config(seal: Seal, refresh: int | None = None) -> LoopConfig:
    """What `seal` and `data.synthetic_refresh` of a recipe say about a round."""
    return LoopConfig(
        weights=seal.weights,
        utilities=seal.weights.dynamic,
        refresh=refresh,
        **vars(seal.profile),
    )


def after_round(
    state: LoopState,
    step: int,
    rollouts: Sequence[Rollout],
    shown: Interface,
    config: LoopConfig,
) -> LoopState:
    """The state with one more round's labels in it (paper Algorithm 1, line 4).

    The rollouts are those that were trained on, without padding. `shown` is Omega_t.
    """
    share, active = config.weights.cascade_share, bool(shown.active())
    round_profile = profile_of(step, rollouts, share, interface_active=active)
    history = state.history.after(round_profile, config)
    state = replace(state, step=step, history=history, shown=shown)
    if config.frozen_after is not None and step > config.frozen_after:
        return replace(state, profile=replace(state.profile, version=step))
    drawing = state.drawing
    if drawing is not None and config.refresh is not None:
        steering = profile_of(step, steering_rollouts(rollouts), share, interface_active=active)
        drawing = drawing.after(steering, config, config.refresh)
    return replace(
        state,
        profile=replace(history.window, version=step),
        utilities=next_utilities(
            state.utilities,
            config.weights.utilities,
            history.window,
            config.utilities,
            config.weights.w_min,
            config.weights.w_max,
        ),
        drawing=drawing,
    )


def save(state: LoopState, folder: Path) -> None:
    """Write the state into a checkpoint's folder, which is made; it is written whole or not."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / FILE, json.dumps(state.to_json()))


def load(folder: Path) -> LoopState:
    """Read the state from a checkpoint's folder.

    Raises:
        TrainingError: There is none, or it cannot be read.
    """
    path = folder / FILE
    try:
        return LoopState.from_json(json.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        raise TrainingError(
            f"{folder} has no {FILE}: it was not saved by this trainer. Name another checkpoint "
            "with --resume -- trainer.resume_from_path=..., or leave --resume out to start anew"
        ) from None
    except ValueError as error:
        raise TrainingError(f"{path} cannot be read ({error}); resume from another one") from error

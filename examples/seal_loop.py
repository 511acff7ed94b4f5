"""SEAL in one file: Algorithm 1 of the paper (arXiv 2605.24426) on a toy, in a few seconds.

    .venv/bin/python examples/seal_loop.py --seed 1 --rounds 20

Any Python 3.11 with numpy and jsonschema runs it, too. Read it from top to bottom: the tasks, the
policy, the loop, then what its lines call. docs/method.md says where a full run has each of them.

What is real: all that is imported from `env_service` and `seal`. A full run has the same diagnosis
Psi, failure profile C_t, weights w_j, evolution of the learning interface Omega_t, sentences of the
interface and dialogue protocol. Tools and verifier are the toy environment's.

What is a toy: the policy, a table of logits over eight messages. It cannot read, so a stated rule
says what a sentence of the interface does to its logits (`draw`). It is evaluated on the tasks that
it is trained on, by sampling (paper: other tasks, temperature 0). A message takes the place of a
token. There is no KL loss, and with one update for each batch GRPO's clip never acts. So the
figures show how the loop works, and not whether it helps: see docs/evidence.md for that.

What to change first: `WeightConfig(w_min=1, w_max=1)` switches the weights off, `HEED = 0` makes
the policy deaf to the interface, `InterfaceConfig(prevalence_over="turns")` is another rule for it.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.random import Generator, default_rng
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it runs uninstalled

from env_service.environments.base import EpisodeOptions
from env_service.environments.toy.environment import ToyEpisode, ToyTask
from seal.coevolution import texts
from seal.coevolution.evolution import InterfaceConfig, evolve
from seal.coevolution.interface import INITIAL, Interface
from seal.coevolution.profile import ProfileHistory, ProfileWindow, profile_of
from seal.coevolution.rollout import Rollout
from seal.coevolution.weights import UTILITIES, WeightConfig, batch_weights
from seal.formats import ToolCall, render_calls
from seal.labels import FAILURES, Label
from seal.wire import EvaluateReply, Message

GROUPS = 4  # GRPO groups of each task in a round
GROUP_SIZE = 8  # G, rollouts of a group (paper: 8)
LEARNING_RATE = 10.0  # of the logits
HEED = 1.5  # how much a sentence of the interface lowers the logits of messages that it warns of

Array: TypeAlias = NDArray[np.float64]
State: TypeAlias = tuple[str, str]  # what the user said last; tools' answer: none, result, error
Policy: TypeAlias = dict[State, Array]  # theta: for each state, a logit for each action
Rollouts: TypeAlias = Sequence[Rollout]

# ---- Tasks of the toy environment: what the user says in each turn, and the reference's calls

LAMP_ON = ToolCall("switch_lamp", {"on": True})
ADD_1, ADD_3 = ToolCall("add", {"amount": 1}), ToolCall("add", {"amount": 3})
TASKS = (
    ToyTask("lamp", ("Switch the lamp on.",), ((LAMP_ON,),)),
    ToyTask("counter", ("Add 3 to the counter.",), ((ADD_3,),)),
    ToyTask("both", ("Lamp on, and 1 more on the counter.",), ((LAMP_ON, ADD_1),)),
    ToyTask("chat", ("How are you?", "Add 3 to the counter."), ((), (ADD_3,))),
)

# ---- The toy policy: the messages that it can write, each with the failure that it leads to

ACTIONS: Sequence[tuple[str, Label | None]] = (
    (render_calls([LAMP_ON], "hermes"), None),
    (render_calls([ADD_1], "hermes"), None),
    (render_calls([ADD_3], "hermes"), None),
    (render_calls([LAMP_ON, ADD_1], "hermes"), None),
    (render_calls([ToolCall("add", {"amount": "three"})], "hermes"), Label.ARGUMENT_MISMATCH),
    (render_calls([ToolCall("turn_lamp_on", {})], "hermes"), Label.INVALID_TOOL_CALL),
    ("<tool_call>switch the lamp on</tool_call>", Label.INVALID_TOOL_CALL),
    ("Done.", Label.MISSING_TOOL_CALL),
)
WARNINGS: Mapping[str, Label] = {
    **{sentence: label for label, sentence in texts.GUIDELINES.items()},
    texts.SCHEMA_NOTE: Label.ARGUMENT_MISMATCH,
    texts.AFFORDANCE_NOTE: Label.MISSING_TOOL_CALL,
    texts.ARGUMENT_HINT.partition("{")[0]: Label.ARGUMENT_MISMATCH,
    texts.PARSE_HINT.partition("{")[0]: Label.INVALID_TOOL_CALL,
    texts.UNKNOWN_TOOL_HINT: Label.INVALID_TOOL_CALL,
}
"""Sentences of the interface, up to a value in them, and the failure that each warns of. A warning
of a failure to which no message leads by itself, such as state_mismatch, changes nothing."""


class Step(NamedTuple):
    """One message of the policy: state s, action a, and pi_theta(.|s) when a was drawn."""

    state: State
    action: int
    probabilities: Array


def draw(policy: Policy, dialogue: Sequence[Message], rng: Generator) -> Step:
    """The next message of a dialogue, by pi_theta(.|s) = softmax(theta[s] - HEED * warnings)."""
    state = state_of(dialogue)
    theta = policy.setdefault(state, np.zeros(len(ACTIONS)))
    odds = np.exp(theta - HEED * warnings_of(dialogue, state))
    probabilities = odds / odds.sum()
    return Step(state, int(rng.choice(len(ACTIONS), p=probabilities)), probabilities)


def state_of(dialogue: Sequence[Message]) -> State:
    """The state that a dialogue is in."""
    request = [message["content"] for message in dialogue if message["role"] == "user"][-1]
    if dialogue[-1]["role"] == "user":
        return request, "none"
    return request, "error" if '"error"' in dialogue[-1]["content"] else "result"


def warnings_of(dialogue: Sequence[Message], state: State) -> Array:
    """For each action, how many sentences of the dialogue warn of it."""
    text = "\n".join(message["content"] for message in dialogue)
    counts = Counter(label for sentence, label in WARNINGS.items() if sentence in text)
    if state[1] == "result":  # a tool was called, so "Done." is not too early
        del counts[Label.MISSING_TOOL_CALL]
    return np.array([counts[failure] if failure else 0.0 for _, failure in ACTIONS])


# ---- Algorithm 1 (section 3.5)


def seal_loop(rounds: int, rng: Generator) -> None:
    """Train policy pi_t and evolve interface Omega_t together; prints one line for each round."""
    policy, interface, history = Policy(), INITIAL, ProfileHistory()
    for t in range(1, rounds + 1):
        # Lines 1 to 3: rollouts through Omega_t, their rewards r and labels z.
        batch = roll_out_batch(policy, EpisodeOptions("train", interface), rng)
        rollouts = [trajectory.rollout for trajectory in batch]
        # Line 4: the failure profile C_t = history.window, here of the last round alone.
        history = history.after(profile_of(t, rollouts), ProfileWindow())
        # Line 5: weights w_j, and advantages w_j A_j.
        weights = weights_of(rollouts)
        advantages = weights * advantages_of(rollouts)
        # Evaluation, on the untouched benchmark.
        untouched = roll_out_batch(policy, EpisodeOptions("eval"), rng)
        print(row(t, batch, untouched, weights, interface))
        # Line 6: policy update, and Omega_{t+1} = Evolve(Omega_t, C_t).
        update(policy, batch, advantages)
        interface = evolve(interface, history.window, InterfaceConfig())


class Trajectory(NamedTuple):
    """A trajectory j: the policy's messages; reward r_j and the label z_i of each turn."""

    steps: Sequence[Step]
    rollout: Rollout


Batch: TypeAlias = Sequence[Trajectory]


def roll_out_batch(policy: Policy, options: EpisodeOptions, rng: Generator) -> Batch:
    """Every task GROUPS * GROUP_SIZE times; those of a group follow each other."""
    batch = [task for task in TASKS for _ in range(GROUPS * GROUP_SIZE)]
    return [roll_out(policy, ToyEpisode(task, options), rng) for task in batch]


def roll_out(policy: Policy, episode: ToyEpisode, rng: Generator) -> Trajectory:
    """Line 1: a dialogue as seen through Omega_t; in mode "eval" without it (section 3.3)."""
    dialogue, steps, over = list(episode.open().state), [], False
    while not over:
        steps.append(draw(policy, dialogue, rng))
        message = {"role": "assistant", "content": ACTIONS[steps[-1].action][0]}
        reply = episode.step(message)
        dialogue += [message, *reply.state]
        over = reply.is_terminated
    return Trajectory(steps, rollout_of(episode.evaluate()))


def rollout_of(verdict: EvaluateReply) -> Rollout:
    """Lines 2 and 3: r from the verifier, and z_i from the diagnosis Psi (section 3.2)."""
    reward, labels = verdict.accuracy, verdict.diagnosis
    return Rollout(verdict.task_id, verdict.category, reward, reward, labels)


def weights_of(rollouts: Rollouts) -> Array:
    """Line 5: w_j = clip(sum over z of p_j(z) rho(z), w_min, w_max) (section 3.4)."""
    groups = [str(j // GROUP_SIZE) for j in range(len(rollouts))]
    by_turn = batch_weights(rollouts, groups, UTILITIES, WeightConfig())
    return np.array([w_j[0] for w_j in by_turn])  # the same for each turn of a trajectory


def advantages_of(rollouts: Rollouts) -> Array:
    """Line 5: A_j = (r_j - mean of its group) / standard deviation of its group (GRPO)."""
    groups = np.array([rollout.reward for rollout in rollouts]).reshape(-1, GROUP_SIZE)
    return np.concatenate([(r - r.mean()) / (r.std(ddof=1) + 1e-6) for r in groups])


def update(policy: Policy, batch: Batch, advantages: Array) -> None:
    """Line 6: theta += rate * mean over j of w_j A_j * mean over its steps of grad log pi(a|s)."""
    for trajectory, advantage in zip(batch, advantages, strict=True):
        rate = LEARNING_RATE / len(batch) / len(trajectory.steps)
        for step in trajectory.steps:
            gradient = np.eye(len(ACTIONS))[step.action] - step.probabilities  # of a softmax
            policy[step.state] += rate * advantage * gradient


# ---- Report and command line

HEAD = f"""\
Pass rates of a round's policy with and without interface, mean weight, failed turns by the first
word of their label, and active parts of the interface; "+" is the guideline against a label.

round   with  without  weight  {"failed turns":70}  interface"""


def row(t: int, shown: Batch, untouched: Batch, weights: Array, interface: Interface) -> str:
    """The line of a round."""
    with_it, without = (np.mean([j.rollout.reward for j in batch]) for batch in (shown, untouched))
    labels = Counter(turn.label for j in shown for turn in j.rollout.turns)
    failed = ", ".join(f"{short(label)} {labels[label]}" for label in FAILURES if labels[label])
    parts = " ".join(map(short, interface.active()))
    rates = f"{with_it:6.0%} {without:8.0%} {weights.mean():7.2f}"
    return f"{t:5} {rates}  {failed:70}  {parts}".rstrip()


def short(name: str) -> str:
    """The first word of a label or a part."""
    return name.replace("guideline:", "+").partition("_")[0]


def main() -> None:
    """Read the command line and run the loop."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1, help="of all draws (default: 1)")
    parser.add_argument("--rounds", type=int, default=20, help="of training (default: 20)")
    given = parser.parse_args()
    if given.seed < 0 or given.rounds < 1:
        parser.error(f"expected --seed >= 0 and --rounds >= 1, got {given.seed}, {given.rounds}")
    print(HEAD)
    seal_loop(given.rounds, default_rng(given.seed))


if __name__ == "__main__":
    main()

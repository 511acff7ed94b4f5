"""The rollouts of one round: read from verl's queue (TransferQueue), written back, and logged.

In: the keys of a batch; later the weights, the loop's state and the evolved interface. Out:
rollouts, advantages and masks; the weighted advantages under the same keys; scalars under `seal/`
(`seal.records.round_metrics`) and the lines of `seal.records.loop_log`.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import torch
import transfer_queue as tq
from tensordict import TensorDict
from transfer_queue import KVBatchMeta

from seal.coevolution.interface import Interface, difference
from seal.coevolution.rollout import Rollout
from seal.coevolution.weights import WeightConfig
from seal.records.loop_log import LoopLog, group_of, mixed_group_share
from seal.records.round_metrics import by_source, label_counts, round_metrics
from seal.train.advantages import advantage_metrics
from seal.train.state import LoopState
from seal.wire import InterfaceReply, from_json


@dataclass(frozen=True)
class RoundBatch:
    """Rollouts that are trained on, without padding; all sequences have the same order."""

    partition_id: str
    """verl's name of the queue's part, "train"."""
    keys: list[str]
    """verl's key of each rollout."""
    rollouts: list[Rollout]
    """What the agent loop left beside the tokens."""
    advantages: tuple[torch.Tensor, ...]
    """Shape (response tokens,) each."""
    masks: tuple[torch.Tensor, ...]
    """1 where the policy wrote, 0 elsewhere; the same shapes."""
    log_probs: tuple[torch.Tensor, ...] | None
    """Log probabilities by the rollout engine, the same shapes; None if they were not asked for."""

    @property
    def groups(self) -> list[str]:
        """The GRPO group of each rollout."""
        return [group_of(key) for key in self.keys]

    @classmethod
    def read(cls, batch: KVBatchMeta, *, log_probs: bool) -> "RoundBatch":
        """Read a batch of verl's.

        verl pads a batch that its workers cannot share evenly, e.g. after a dropped group. A
        padding row has the record of a real rollout, but its response_mask is zero, so no loss has
        a token of it (verl/trainer/ppo/padding_utils.py). It is neither weighted nor counted.
        """
        keys = [
            key
            for key, tag in zip(batch.keys, batch.tags, strict=True)
            if not tag.get("is_padding", False)
        ]
        fields = ["advantages", "response_mask", "extra_fields"]
        fields += ["rollout_log_probs"] if log_probs else []
        data = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=fields)
        # pop, as verl does: indexing unwraps non-tensor stacks in tensordict 0.10
        extra_fields = data.pop("extra_fields").tolist()
        return cls(
            partition_id=batch.partition_id,
            keys=keys,
            rollouts=[from_json(Rollout, fields["seal"]) for fields in extra_fields],
            advantages=data["advantages"].unbind(),
            masks=data["response_mask"].unbind(),
            log_probs=data["rollout_log_probs"].unbind() if log_probs else None,
        )

    def write(self, advantages: list[torch.Tensor]) -> None:
        """Put the advantages that the policy is updated with in the place of verl's."""
        nested = torch.nested.as_nested_tensor(advantages, layout=torch.jagged)
        fields = TensorDict({"advantages": nested}, batch_size=len(self.keys))
        tq.kv_batch_put(keys=self.keys, partition_id=self.partition_id, fields=fields)


class RoundLog:
    """Collects a round's line while the round is played and writes it when the round is over."""

    def __init__(self, log: LoopLog, config: WeightConfig, aggregation: str) -> None:
        self._log, self._config, self._aggregation = log, config, aggregation
        self._line: dict[str, Any] = {}

    def weighted(
        self,
        step: int,
        batch: RoundBatch,
        weights: Sequence[Sequence[float]],
        advantages: Sequence[torch.Tensor],
        state: LoopState,
        shown: Interface,
        logged: dict[str, Any],
    ) -> None:
        """Note the rollouts of a round once their advantages are weighted.

        `state` is the loop before the round's labels are in it. The round's metrics are added to
        `logged`, verl's metrics of the step.
        """
        rollouts = batch.rollouts
        rewards: dict[str, list[float]] = {}
        for group, rollout in zip(batch.groups, rollouts, strict=True):
            rewards.setdefault(group, []).append(rollout.training_reward)
        sources = by_source(rollouts, batch.groups)
        metrics = {
            **round_metrics(rollouts, weights, state.utilities, self._config),
            "seal/mixed_group_share": mixed_group_share(rewards),
            **advantage_metrics(
                batch.advantages, advantages, batch.masks, batch.log_probs, self._aggregation
            ),
            **{f"seal/utility/{label.value}": rho for label, rho in state.utilities.items()},
            "seal/interface/version": shown.version,
            "seal/interface/active_parts": len(shown.active()),
            **{
                f"seal/{source}/{name}": figures[name]
                for source, figures in sources.items()
                for name in ("groups", "pass_rate", "mixed_group_share")
            },
        }
        logged.update(metrics)
        self._log.rollouts(
            {
                "step": step,
                # verl's dump of the dialogues names each of them by the same uid.
                "uid": key,
                "group": group,
                "policy_tokens": int(mask.sum()),
                "response_tokens": len(mask),
                "weights": list(by_turn),
                **rollout.to_json(),
            }
            for key, group, mask, rollout, by_turn in zip(
                batch.keys, batch.groups, batch.masks, rollouts, weights, strict=True
            )
        )
        self._line = {
            "step": step,
            "metrics": metrics,
            "rollouts": len(rollouts),
            "dropped_groups": logged.get("seal/dropped_groups", 0),
            "filtered_groups": logged.get("seal/filtered_groups", 0),
            "labels": label_counts(rollouts),
            "weights": sorted(round(fmean(by_turn), 4) for by_turn in weights),
            "interface_versions": sorted({rollout.interface_version for rollout in rollouts}),
            # Sorted, because verl orders a batch by length.
            "task_ids": sorted({rollout.task_id for rollout in rollouts}),
            "sources": sources,
            # What the synthetic tasks of this round were drawn with.
            "scores": _scores(state),
        }

    def evolved(self, state: LoopState, reply: InterfaceReply, least_turns: int) -> None:
        """Write the round's line; `state` holds C_t and Omega_t, `reply` is Omega_{t+1}.

        `least_turns` is the rule's smallest number of turns (`FailureProfile.rate`).
        """
        self._log.round(
            {
                **self._line,
                "interface_shown": asdict(state.shown.to_reply()),
                "profile": state.profile.to_json(),
                "rates": state.profile.rates(least_turns),
                "total": state.history.total.to_json(),
                "utilities": {label.value: rho for label, rho in state.utilities.items()},
                "next_scores": _scores(state),
                "interface": asdict(reply),
                "interface_change": difference(state.shown, Interface.from_json(reply.interface)),
            }
        )


def _scores(state: LoopState) -> dict[str, float]:
    scores = {} if state.drawing is None else state.drawing.scores
    return {label.value: score for label, score in scores.items()}

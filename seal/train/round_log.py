"""What a run logs about each training round: verl's metrics, one line for each rollout and round.

In: the round's rollouts with their weights, and later the state and the evolved interface. Out:
scalars under `seal/` and the lines of `seal.records.loop_log`.
"""

from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

import torch

from seal.coevolution.interface import Interface, difference
from seal.coevolution.weights import WeightConfig
from seal.records.loop_log import LoopLog, mixed_group_share
from seal.train.advantages import advantage_metrics
from seal.train.round import label_counts, round_metrics
from seal.train.round_batch import RoundBatch
from seal.train.state import LoopState
from seal.wire import InterfaceReply


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
        records = batch.records
        rewards: dict[str, list[float]] = {}
        for group, record in zip(batch.groups, records, strict=True):
            rewards.setdefault(group, []).append(record.training_reward)
        metrics = {
            **round_metrics(records, weights, state.utilities, self._config),
            "seal/mixed_group_share": mixed_group_share(rewards),
            **advantage_metrics(
                batch.advantages, advantages, batch.masks, batch.log_probs, self._aggregation
            ),
            **{f"seal/utility/{label.value}": rho for label, rho in state.utilities.items()},
            "seal/interface/version": shown.version,
            "seal/interface/active_parts": len(shown.active()),
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
                **record.to_json(),
            }
            for key, group, mask, record, by_turn in zip(
                batch.keys, batch.groups, batch.masks, records, weights, strict=True
            )
        )
        self._line = {
            "step": step,
            "metrics": metrics,
            "rollouts": len(records),
            "dropped_groups": logged.get("seal/dropped_groups", 0),
            "filtered_groups": logged.get("seal/filtered_groups", 0),
            "labels": label_counts(records),
            "weights": sorted(round(fmean(by_turn), 4) for by_turn in weights),
            "interface_versions": sorted({record.interface_version for record in records}),
            # Sorted, because verl orders a batch by length.
            "task_ids": sorted({record.task_id for record in records}),
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
                "interface": asdict(reply),
                "interface_change": difference(state.shown, Interface.from_json(reply.interface)),
            }
        )

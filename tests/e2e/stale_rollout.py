"""A worker extension that one day receives new weights and loads them no more: a test's control."""

from typing import Any

import torch
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver

from seal.train.cpu.rollout import CpuWorkerExtension

LOADED = 3
"""Transfers that are loaded: before the first step, after it and after the second one."""


class StaleWorkerExtension(CpuWorkerExtension):
    """Leaves the rollout model as it is after `LOADED` transfers."""

    transfers = 0

    def update_weights_from_ipc(
        self, peft_config: Any = None, base_sync_done: bool = False, use_shm: bool = False
    ) -> None:
        self.transfers += 1
        if self.transfers <= LOADED:
            super().update_weights_from_ipc(peft_config, base_sync_done, use_shm)
            return
        receiver = BucketedWeightReceiver(
            self._get_zmq_handle(), torch.device("cpu"), use_shm=use_shm
        )
        receiver.receive_weights(lambda bucket, is_last: None)

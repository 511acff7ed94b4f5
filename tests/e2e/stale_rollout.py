"""A worker extension that receives new weights and does not load them: the control of a test."""

from typing import Any

import torch
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver

from seal.train.cpu.rollout import CpuWorkerExtension


class StaleWorkerExtension(CpuWorkerExtension):
    """Leaves the rollout model as it was before the first update."""

    def update_weights_from_ipc(
        self, peft_config: Any = None, base_sync_done: bool = False, use_shm: bool = False
    ) -> None:
        receiver = BucketedWeightReceiver(
            self._get_zmq_handle(), torch.device("cpu"), use_shm=use_shm
        )
        receiver.receive_weights(lambda bucket, is_last: None)

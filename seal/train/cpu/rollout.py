"""A vLLM worker extension that takes the trainer's weights on a CPU.

vLLM packs every linear weight for oneDNN after loading and leaves an empty tensor behind, so
verl's way (copy into the live parameters) cannot work here. The weights are gathered and given
to vLLM's own reload, which packs them again. Chosen by
`actor_rollout_ref.rollout.engine_kwargs.vllm.worker_extension_cls`.
"""

from typing import Any

import torch
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension


class CpuWorkerExtension(vLLMColocateWorkerExtension):
    """Receives all buckets, then reloads the model once."""

    def update_weights_from_ipc(
        self, peft_config: Any = None, base_sync_done: bool = False, use_shm: bool = False
    ) -> None:
        """Replace the rollout model's weights by those the trainer sends.

        The sender waits without a time-out for this method: an exception here stalls the
        trainer, which the launcher's watchdog reports (`launcher.stall_timeout_s`).
        """
        weights: dict[str, torch.Tensor] = {}
        dtype = self.model_config.dtype
        receiver = BucketedWeightReceiver(
            self._get_zmq_handle(), torch.device("cpu"), use_shm=use_shm
        )
        # The bucket's memory is used again for the next one: copy.
        receiver.receive_weights(
            lambda bucket, is_last: weights.update(
                (name, tensor.to(dtype, copy=True)) for name, tensor in bucket
            )
        )
        self.model_runner.reload_weights(weights_iterator=iter(weights.items()))
        self._pack_tied_head()

    def _pack_tied_head(self) -> None:
        """Pack the output head again where it shares the embedding's weight.

        Such a head has nothing to load: the reload leaves it the copy packed from the old weights.
        """
        model = self.model_runner.get_model()
        if self.model_config.hf_text_config.tie_word_embeddings:
            model.lm_head.quant_method.process_weights_after_loading(model.lm_head)

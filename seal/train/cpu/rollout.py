"""A vLLM worker extension that takes the trainer's weights on a CPU.

After loading, vLLM packs every linear weight for oneDNN and leaves an empty tensor, so verl cannot
copy new weights into the parameters. Here the weights are collected and given to vLLM's own reload,
which packs them again. The recipe names the class in
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
        """Replace the weights of the rollout model by those that the trainer sends.

        The sender waits for this method without a time limit, so an exception here stops the
        trainer; the launcher's watchdog reports it (`launcher.stall_timeout_s`).
        """
        weights: dict[str, torch.Tensor] = {}
        dtype = self.model_config.dtype
        receiver = BucketedWeightReceiver(
            self._get_zmq_handle(), torch.device("cpu"), use_shm=use_shm
        )
        # Copy, because the next bucket uses the same memory.
        receiver.receive_weights(
            lambda bucket, is_last: weights.update(
                (name, tensor.to(dtype, copy=True)) for name, tensor in bucket
            )
        )
        self.model_runner.reload_weights(weights_iterator=iter(weights.items()))
        self._pack_tied_head()

    def _pack_tied_head(self) -> None:
        """Pack the output head again if it shares the weight of the embedding.

        Such a head loads nothing, so after the reload it still has the packed old weights.
        """
        model = self.model_runner.get_model()
        if self.model_config.hf_text_config.tie_word_embeddings:
            model.lm_head.quant_method.process_weights_after_loading(model.lm_head)

"""vLLM's scheduler and its model in one process.

By default vLLM runs the model of a processor in a process of its own. Scheduler and model then send
each other a message for every token, and the one that waits spins: one of two cores does nothing
else. Here the scheduler calls the model. The recipe names the class in
`actor_rollout_ref.rollout.engine_kwargs.vllm.distributed_executor_backend`.
"""

import torch
from vllm.v1.executor.uniproc_executor import UniProcExecutor


class CpuExecutor(UniProcExecutor):
    """Computes with `additional_config.threads` threads, which are not bound to cores.

    vLLM replaces its own executor "uni" on a processor, because it does not set the number of
    OpenMP's threads.
    """

    def _init_executor(self) -> None:
        if self.parallel_config.world_size != 1:
            raise ValueError(
                "on the CPU a rollout engine is one process: set tensor_model_parallel_size and "
                "pipeline_model_parallel_size of actor_rollout_ref.rollout to 1"
            )
        torch.set_num_threads(int(self.vllm_config.additional_config["threads"]))
        super()._init_executor()

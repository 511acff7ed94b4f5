"""The project's engine for the device "cpu".

Every process that reads the model configuration imports it, through
`actor_rollout_ref.model.external_lib`. Only verl's own workers, which Ray starts for a process
group, get an engine.
"""

import os

import torch
import torch.distributed as dist
from verl.workers.engine.base import EngineRegistry

from seal.train.engine import PolicyTokensEngine

# verl would ask torch for the backend "cpu:gloo,cpu:gloo", which torch rejects, but it uses a group
# that exists already. verl sets WG_BACKEND only in its worker processes.
if os.environ.get("WG_BACKEND") == "ray" and not dist.is_initialized():
    dist.init_process_group(
        "gloo", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"])
    )


@EngineRegistry.register(model_type="language_model", backend=["fsdp2"], device="cpu")
class CpuFSDPEngine(PolicyTokensEngine):
    """FSDP2 on the CPU, for which verl does not register it."""

    def _build_fsdp_module(self, module: torch.nn.Module) -> torch.nn.Module:
        # For a forward-only engine (the reference policy) verl offloads parameters into pinned
        # memory, which needs an accelerator. Here the parameters are in CPU memory anyway.
        forward_only = self.engine_config.forward_only
        self.engine_config.forward_only = False
        try:
            return super()._build_fsdp_module(module)
        finally:
            self.engine_config.forward_only = forward_only

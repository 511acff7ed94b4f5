"""The project's engine for the device "cpu".

Imported through `actor_rollout_ref.model.external_lib` in every process that reads the model
configuration; only verl's own workers, which Ray started for a process group, get one.
"""

import os

import torch
import torch.distributed as dist
from verl.workers.engine.base import EngineRegistry

from seal.train.engine import PolicyTokensEngine

# verl would ask torch for the backend "cpu:gloo,cpu:gloo", which torch rejects; it leaves a
# group alone that is there already. WG_BACKEND is set by verl in its worker processes only.
if os.environ.get("WG_BACKEND") == "ray" and not dist.is_initialized():
    dist.init_process_group(
        "gloo", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"])
    )


@EngineRegistry.register(model_type="language_model", backend=["fsdp2"], device="cpu")
class CpuFSDPEngine(PolicyTokensEngine):
    """FSDP2 on the processor; verl has merely not registered it for this device."""

    def _build_fsdp_module(self, module: torch.nn.Module) -> torch.nn.Module:
        # For a forward-only engine (the reference policy) verl asks for offloading into pinned
        # memory, which needs an accelerator to pin for. Here the parameters are at home already.
        forward_only = self.engine_config.forward_only
        self.engine_config.forward_only = False
        try:
            return super()._build_fsdp_module(module)
        finally:
            self.engine_config.forward_only = forward_only

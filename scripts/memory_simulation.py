"""The second source of `memory_plan.py`: an update of one FSDP2 rank on torch's fake tensors.

    .venv/bin/python scripts/memory_simulation.py CONFIG.json --ranks 4 --tokens 16384 --own 7680

CONFIG.json is a model's configuration (keys of a config.json). Nothing is allocated or computed:
tensors have shapes only, the process group is torch's fake one, and torch's tracker adds up what
would be allocated. verl's own function wraps the model, with the engine's output head and log
probabilities. A micro-batch is one sequence. The peak is that of a later micro-batch, when the
gradients of an earlier one exist. Printed is a line of JSON for each configuration, number of the
policy's tokens and number of ranks: bytes of a rank at the peak, by kind.
"""

import argparse
import gc
import itertools
import json
import os
import sys
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.update(VERL_PLATFORM="cpu", VERL_USE_EXTERNAL_MODULES="seal.train.cpu.platform")

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
from verl.utils.fsdp_utils import apply_fsdp2

from seal.train.log_probs import token_log_probs


def model_of(described: dict[str, Any]) -> torch.nn.Module:
    """The model in float32, as verl loads it for training."""
    described = dict(described)
    config = AutoConfig.for_model(described.pop("model_type"), **described)
    text = config.get_text_config() is config
    model_class = AutoModelForCausalLM if text else AutoModelForImageTextToText
    model = model_class.from_config(config, attn_implementation="sdpa", dtype=torch.float32)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model.train()


def simulate(described: dict[str, Any], ranks: int, tokens: int, own: int) -> dict[str, int]:
    """Bytes of a rank at the peak of an update, by kind as torch's tracker names them.

    A micro-batch has `tokens` tokens, of which the policy wrote `own`.
    """
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))
    # Fake tensors have no values, so transformers cannot ask whether they are packed: they are not.
    one_sequence = mock.patch("transformers.masking_utils.find_packed_sequence_indices")
    with one_sequence as packed, FakeTensorMode(allow_non_fake_inputs=True):
        packed.return_value = None
        model = model_of(described)
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=True)
        model.get_output_embeddings().register_forward_pre_hook(
            lambda head, given: (given[0][:, -own:],)
        )
        settings = {"mesh": mesh, "mp_policy": policy, "reshard_after_forward": True}
        apply_fsdp2(model, settings, {"wrap_policy": {}})
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
        tracker = FSDPMemTracker(model, optimizer)
        ids = torch.zeros(1, tokens, dtype=torch.int64)
        positions = torch.arange(tokens)[None]
        tracker.track_inputs((ids, positions))

        def micro_batch() -> None:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                output = model(input_ids=ids, position_ids=positions, use_cache=False)
                logits = output.logits.squeeze(0)
                del output
                log_probs, _ = token_log_probs(logits, ids[0, -own:], torch.ones(own))
                del logits
            (-log_probs.mean()).backward()

        # Adam's moments exist after the first step, gradients after the first micro-batch.
        with tracker:
            micro_batch()
            optimizer.step()
            optimizer.zero_grad()
            tracker.reset_mod_stats()
            micro_batch()
            tracker.reset_mod_stats()
        gc.collect()
        # Entering the tracker resets its peak.
        with tracker:
            micro_batch()
        peak = tracker.get_tracker_snapshot("peak")
    dist.destroy_process_group()
    (sizes,) = (kinds for device, kinds in peak.items() if device.type == "cpu")
    return {str(kind).split(".")[-1].lower(): size for kind, size in sizes.items() if size}


def main() -> int:
    """Read the command line, simulate, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("configs", type=Path, nargs="+", help="models' configurations, JSON")
    parser.add_argument("--ranks", type=int, nargs="+", required=True, help="one or several")
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--own", type=int, nargs="+", required=True, help="one or several")
    args = parser.parse_args()
    described = [json.loads(config.read_text("utf-8")) for config in args.configs]
    for model, own, ranks in itertools.product(described, args.own, args.ranks):
        sys.stdout.write(json.dumps(simulate(model, ranks, args.tokens, own)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

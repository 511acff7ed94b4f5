"""Why the check refuses fused kernels: verl's, under FSDP2, with a tied and an untied head."""

import pytest
import torch
import torch.distributed
from small_models import TINY
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy
from transformers import Qwen2Config, Qwen2ForCausalLM
from verl.models.transformers.monkey_patch import apply_monkey_patch
from verl.utils.fsdp_utils import apply_fsdp2


def log_probs(monkeypatch: pytest.MonkeyPatch, tied: bool, fused: bool) -> torch.Tensor:
    """Of ten next tokens, shape (1, 10)."""
    # verl replaces the class's own; the other tests want it as it was.
    monkeypatch.setattr(Qwen2ForCausalLM, "forward", Qwen2ForCausalLM.forward)
    torch.manual_seed(1)
    config = Qwen2Config(**TINY, tie_word_embeddings=tied)
    model = Qwen2ForCausalLM._from_config(config, attn_implementation="sdpa")
    ids = torch.randint(0, 64, (1, 10))
    labels = ids.roll(-1, 1)
    if not fused:
        logits = model(input_ids=ids, use_cache=False).logits
        return logits.log_softmax(-1).gather(-1, labels[..., None]).squeeze(-1)
    apply_monkey_patch(
        model, use_remove_padding=True, use_fused_kernels=True, fused_kernels_backend="torch"
    )
    mesh = init_device_mesh("cpu", (1,))
    settings = {"mesh": mesh, "mp_policy": MixedPrecisionPolicy(), "reshard_after_forward": True}
    apply_fsdp2(model, settings, {"wrap_policy": {}})
    positions = torch.arange(10)[None]
    given = {"temperature": 1.0, "return_dict": True, "shift_labels": labels}
    found: torch.Tensor = model(
        input_ids=ids, position_ids=positions, use_cache=False, **given
    ).log_probs
    return found


@pytest.mark.usefixtures("one_rank")
@pytest.mark.filterwarnings("ignore")
def test_a_tied_head_works(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = log_probs(monkeypatch, tied=True, fused=False)
    torch.testing.assert_close(log_probs(monkeypatch, tied=True, fused=True), plain)


@pytest.mark.usefixtures("one_rank")
@pytest.mark.filterwarnings("ignore")
def test_a_head_of_its_own_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it does not, the check can go."""
    with pytest.raises(RuntimeError, match="mixed torch.Tensor and DTensor"):
        log_probs(monkeypatch, tied=False, fused=True)

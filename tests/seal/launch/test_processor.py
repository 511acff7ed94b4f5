"""What a processor multiplies fast, from texts of /proc/cpuinfo, and what recipes make of it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seal.launch import processor
from seal.launch.recipe import EXP, load_recipe

INTEL = """\
processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) Platinum 8488C
flags\t\t: fpu sse4_2 avx avx2 avx512f avx512_vnni amx_bf16 avx512_fp16 amx_tile amx_int8
vmx flags\t: vnmi preemption_timer
bugs\t\t: spectre_v1

processor\t: 1
flags\t\t: fpu sse4_2 avx avx2 avx512f avx512_vnni amx_bf16 avx512_fp16 amx_tile amx_int8
"""
AMD = """\
processor\t: 0
vendor_id\t: AuthenticAMD
model name\t: AMD EPYC 9R14
flags\t\t: fpu sse4_2 avx avx2 avx512f avx512_vnni avx512_bf16 clzero
"""
PLAIN = """\
processor\t: 0
vendor_id\t: GenuineIntel
model name\t: a processor with neither avx512_bf16 nor amx_bf16
flags\t\t: fpu sse4_2 avx avx2 avx512f avx512_vnni amx_tile
vmx flags\t: amx_bf16
"""


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Sets the machine's /proc/cpuinfo."""

    def becomes(information: str) -> None:
        (tmp_path / "cpuinfo").write_text(information)
        monkeypatch.setattr(processor, "_INFORMATION", tmp_path / "cpuinfo")
        processor.cpu_dtype.cache_clear()

    yield becomes
    processor.cpu_dtype.cache_clear()  # the test's processor is not ours


@pytest.mark.parametrize(
    ("information", "expected"),
    [
        (INTEL, "bfloat16"),
        (AMD, "bfloat16"),
        (PLAIN, "float32"),
        ("flags\t\t: not_amx_bf16 avx512_bf16_too\n", "float32"),
        ("processor\t: 0\nBogoMIPS\t: 243.75\n", "float32"),
        ("", "float32"),
    ],
    ids=["intel", "amd", "no flag", "longer names", "no flags", "empty"],
)
def test_bfloat16_where_the_flags_say_so(
    information: str, expected: str, machine: Callable[[str], None]
) -> None:
    assert processor.dtype_of(information) == expected
    machine(information)
    assert processor.cpu_dtype() == expected


def test_a_machine_that_does_not_say_computes_in_float32(
    machine: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine(INTEL)
    monkeypatch.setattr(processor, "_INFORMATION", tmp_path / "nothing")
    assert processor.cpu_dtype() == "float32"


@pytest.mark.parametrize(
    ("information", "expected"), [(AMD, "bfloat16"), (PLAIN, "float32")], ids=["fast", "slow"]
)
def test_smollm2_computes_in_what_the_processor_multiplies_fast(
    information: str, expected: str, machine: Callable[[str], None]
) -> None:
    # Imported here: the other tests need not wait for them.
    import torch
    from verl.utils.torch_dtypes import PrecisionType
    from vllm.config.model import _STR_DTYPE_TO_TORCH_DTYPE

    machine(information)
    model = load_recipe(EXP / "smollm2.yaml", []).actor_rollout_ref
    computed = getattr(torch, expected)
    for role in (model.actor, model.ref):
        precision = role.fsdp_config.mixed_precision
        assert PrecisionType.to_dtype(precision.param_dtype) is computed
        # What is added up stays exact.
        assert PrecisionType.to_dtype(precision.reduce_dtype) is torch.float32
        assert PrecisionType.to_dtype(precision.buffer_dtype) is torch.float32
        assert PrecisionType.to_dtype(role.fsdp_config.model_dtype) is torch.float32
    assert _STR_DTYPE_TO_TORCH_DTYPE[model.rollout.dtype] is computed

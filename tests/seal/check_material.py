"""A machine and a model made up for tests of the checks: four H100 and a Qwen2.5-7B."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from seal.launch.check.finding import Finding, Level
from seal.launch.check.machine import Machine
from seal.launch.check.model import Model
from seal.launch.gpus import Gpu, Gpus
from seal.launch.shapes import CONFIGS

GIB = 1024**3
H100 = Gpu("NVIDIA H100 80GB HBM3", 80 * GIB, 79 * GIB, (9, 0))
MACHINE = Machine(
    gpus=Gpus((H100,) * 4, "580.65.06", (13, 0)),
    gpu_files=4,
    torch="2.11.0",
    torch_cuda="13.0",
    import_failures={"flash_attn": "", "fla.ops.gated_delta_rule": ""},
    cpus=64,
    memory_bytes=512 * 10**9,
    shared_memory_bytes=256 * 10**9,
    open_files=1_048_576,
    compiler="/usr/bin/gcc",
    python_headers=True,
    disk_bytes=10**12,
    checkpoint_disk_bytes=10**12,
    cluster=None,
)
CLUSTER = replace(MACHINE, cluster="10.0.0.1:6379")
"""A login node that joins a Ray cluster."""
QWEN_7B = Model(
    "models/qwen2.5-7b",
    Path("models/qwen2.5-7b"),
    config=CONFIGS["Qwen/Qwen2.5-7B-Instruct"],
    parameters=7_615_616_512,
)


def machine(**changed: Any) -> Machine:
    return replace(MACHINE, **changed)


def said(found: Iterable[Finding], level: Level) -> str:
    """What the only finding says, which is of that level."""
    (one,) = found
    assert one.level is level, one
    return one.message

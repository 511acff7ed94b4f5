"""Checks of the GPUs of this machine.

They do not apply to a recipe for the processor. They do not apply to a run that joins a Ray cluster
either, because its GPUs are in other machines.
"""

from collections.abc import Iterator

from omegaconf import DictConfig

from seal.launch import folders
from seal.launch.check.finding import Finding, error, ok, warning
from seal.launch.check.machine import Machine
from seal.launch.check.model import Model
from seal.launch.gpus import Gpu
from seal.launch.memory import UnplannedError, plan, settings_of
from seal.launch.shapes import config_of, shape_of

QUICKSTART = ".venv/bin/python launcher.py --conf exp/quickstart.yaml --with-bfcl"
DRIVERS = {12: "525.60", 13: "580.65"}
"""The oldest Linux driver for each major version of CUDA, by NVIDIA's release notes."""
CAPABILITY = (8, 0)
"""Compute capability of the oldest GPUs with bfloat16 and flash-attn 2: A100."""
_IN_USE = 0.05
"""Share of a GPU's memory above which another process is assumed to use it."""
_GIB = 1024**3


def on_gpus(recipe: DictConfig, machine: Machine) -> bool:
    """Whether the run needs GPUs of this machine."""
    return recipe.trainer.device == "cuda" and machine.cluster is None


def _needed(recipe: DictConfig, machine: Machine) -> tuple[Gpu, ...]:
    """The GPUs that NVML sees; none if the run needs no GPU of this machine."""
    return machine.gpus.seen if on_gpus(recipe, machine) else ()


def number(recipe: DictConfig, machine: Machine, _model: Model) -> Iterator[Finding]:
    """This machine has all GPUs and nodes that the recipe asks for."""
    if not on_gpus(recipe, machine):
        return
    asked, nodes = int(recipe.trainer.n_gpus_per_node), int(recipe.trainer.nnodes)
    seen, unknown = machine.gpus.seen, machine.gpus.unknown
    if nodes > 1:
        yield error(
            "nodes",
            f"trainer.nnodes={nodes}, but the launcher starts Ray on this machine only; start Ray "
            "on every node and set RAY_ADDRESS (docs/running.md)",
        )
    if len(seen) >= asked:
        yield ok("GPUs", f"{asked} of {len(seen)} x {seen[0].name}")
    elif unknown and machine.gpu_files >= asked:
        yield warning("GPUs", f"/dev has {machine.gpu_files}, but NVML cannot read them: {unknown}")
    elif seen:
        yield error(
            "GPUs",
            f"the recipe asks for {asked} (trainer.n_gpus_per_node), and CUDA sees {len(seen)} "
            f"(CUDA_VISIBLE_DEVICES limits it); set trainer.n_gpus_per_node={len(seen)}",
        )
    else:
        yield error(
            "GPUs",
            f"this recipe asks for {asked} (trainer.n_gpus_per_node), and this machine has none"
            f"{f' ({unknown})' if unknown else ''}. The quickstart needs none: {QUICKSTART}",
        )


def driver(recipe: DictConfig, machine: Machine, _model: Model) -> Iterator[Finding]:
    """The installed torch has CUDA, and the driver supports this version of CUDA."""
    if recipe.trainer.device != "cuda":
        return
    if machine.torch_cuda is None:
        yield error(
            "torch",
            f"the installed torch ({machine.torch or 'none'}) is built without CUDA; install the "
            "CUDA packages: bash install.sh --cuda",
        )
        return
    major = int(machine.torch_cuda.split(".")[0])
    if not on_gpus(recipe, machine) or not machine.gpus.driver:
        yield ok("torch", f"{machine.torch}, CUDA {machine.torch_cuda}")
    elif machine.gpus.cuda[0] < major:
        least = f" {DRIVERS[major]} or newer" if major in DRIVERS else ""
        yield error(
            "driver",
            f"the driver {machine.gpus.driver} supports CUDA up to "
            f"{'.'.join(map(str, machine.gpus.cuda))}, and torch {machine.torch} is built for CUDA "
            f"{machine.torch_cuda}; install a newer driver{least}",
        )
    else:
        yield ok(
            "driver",
            f"{machine.gpus.driver} supports CUDA {machine.torch_cuda} of torch {machine.torch}",
        )


def capability(recipe: DictConfig, machine: Machine, _model: Model) -> Iterator[Finding]:
    """Every GPU has bfloat16."""
    seen = _needed(recipe, machine)
    if not seen:
        return
    oldest = min(seen, key=lambda gpu: gpu.capability)
    shown = ".".join(map(str, oldest.capability))
    if oldest.capability < CAPABILITY:
        yield error(
            "capability",
            f"{oldest.name} has compute capability {shown}; flash-attn and bfloat16 need 8.0 or "
            "more (A100, H100); hide it with CUDA_VISIBLE_DEVICES, or use another machine",
        )
    else:
        yield ok("capability", shown)


def free_memory(recipe: DictConfig, machine: Machine, _model: Model) -> Iterator[Finding]:
    """Other processes leave enough memory on each GPU."""
    seen = _needed(recipe, machine)
    if not seen:
        return
    share = float(recipe.actor_rollout_ref.rollout.gpu_memory_utilization)
    fullest = min(seen, key=lambda gpu: gpu.free_bytes / gpu.total_bytes)
    free, total = fullest.free_bytes, fullest.total_bytes
    shown = f"{free / _GIB:.0f} of {total / _GIB:.0f} GiB free on the fullest GPU"
    if free < share * total:
        yield error(
            "GPU memory",
            f"{shown}, and vLLM takes {share:.0%} of each (actor_rollout_ref.rollout."
            "gpu_memory_utilization); end the processes that nvidia-smi shows",
        )
    elif free < (1 - _IN_USE) * total:
        yield warning("GPU memory", f"{shown}: another process uses it (nvidia-smi)")
    else:
        yield ok("GPU memory", shown)


def planned_memory(recipe: DictConfig, machine: Machine, model: Model) -> Iterator[Finding]:
    """Update and rollouts fit on each GPU, by the formulas of `seal.launch.memory`."""
    seen = _needed(recipe, machine)
    if not seen:
        return
    subject = "memory plan"
    config = model.config or config_of(model.path, folders.ROOT)
    if not config:
        yield warning(subject, f"not made: the sizes of {model.path} are not known here")
        return
    try:
        planned = plan(shape_of(config), settings_of(recipe))
    except UnplannedError as reason:
        yield warning(subject, f"not made: {reason}")
        return
    except KeyError:
        yield warning(subject, f"not made: no formula for {config.get('model_type')!r}")
        return
    total = min(gpu.total_bytes for gpu in seen)
    largest = planned.largest_utilization(total)
    shown = (
        f"by formula, of {total / _GIB:.0f} GiB: update {planned.update / _GIB:.0f}, rollouts "
        f"{planned.wake(total) / _GIB:.0f}"
    )
    key = "actor_rollout_ref.rollout.gpu_memory_utilization"
    if largest is None:
        yield error(
            subject,
            f"{shown}; no {key} fits. Use more GPUs, or a group of exp/machine/ that keeps the "
            "trainer's state on the host: +machine=gpus_1 (docs/gpu.md)",
        )
    elif planned.utilization > largest:
        yield error(subject, f"{shown}; set {key}={largest}, the largest that fits")
    else:
        yield ok(subject, f"{shown}; {key} could be {largest}")

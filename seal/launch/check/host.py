"""Checks of processors, memory, shared memory, open files and disk against the recipe."""

from collections.abc import Iterator

from omegaconf import DictConfig

from seal.launch import folders
from seal.launch.check.finding import Finding, error, ok, warning
from seal.launch.check.machine import Machine
from seal.launch.check.model import Model
from seal.launch.data_files import total_steps
from seal.launch.folders import RunError, checkpoint_folder
from seal.records.checkpoint_folder import steps

FREE_DISK_BYTES = 2 * 1024**3
"""Disk space for logs, dialogues and the checkpoints of a small model."""
WORKERS_PER_GPU = 3
"""Processors that verl reserves per GPU (ResourcePoolManager.max_colocate_count)."""
RUNNER_AND_QUEUE = 2
"""Processors of the task runner (seal.train.main) and of TransferQueue's controller."""
OPEN_FILES = 8192
"""The limit that Ray recommends."""
MANY_STEPS = 1000
"""Assumed number of steps if it is not known."""
_GB, _GIB = 10**9, 1024**3


def processors_needed(recipe: DictConfig) -> int:
    """Processors that Ray reserves on a machine, whether they are busy or not.

    Ray reserves one for the task runner, one for TransferQueue's controller and one for each of its
    storage units. Then verl's placement group takes three per GPU, all at once. Agent loops and
    vLLM reserve none. (verl 0.9.1, TransferQueue 0.1.11; a test compares the count with theirs.)
    """
    queue = recipe.transfer_queue.backend
    units = 0
    if queue.storage_backend == "SimpleStorage":
        units = int(queue.SimpleStorage.num_data_storage_units)
    return RUNNER_AND_QUEUE + units + WORKERS_PER_GPU * int(recipe.trainer.n_gpus_per_node)


def processors(recipe: DictConfig, machine: Machine, _model: Model) -> Iterator[Finding]:
    """There are as many processors as Ray reserves; with fewer it would wait forever."""
    if machine.cluster is not None:
        return
    needed, declared = processors_needed(recipe), recipe.ray_kwargs.ray_init.num_cpus
    available = machine.cpus if declared is None else int(declared)
    source = "on this machine" if declared is None else "by ray_kwargs.ray_init.num_cpus"
    if available >= needed:
        yield ok("processors", f"{available} {source}, Ray reserves {needed}")
        return
    gpus = int(recipe.trainer.n_gpus_per_node)
    yield error(
        "processors",
        f"{available} {source}, and Ray reserves {needed}: {needed - WORKERS_PER_GPU * gpus} for "
        f"the queue and the runner, {WORKERS_PER_GPU} for each of {gpus} GPUs; it would wait for "
        "them forever. Set transfer_queue.backend.SimpleStorage.num_data_storage_units=1 to need "
        f"fewer, or ray_kwargs.ray_init.num_cpus={needed} to let the processes share processors",
    )


def memory(recipe: DictConfig, machine: Machine, model: Model) -> Iterator[Finding]:
    """The host's memory holds the actor's weights during loading, beside the reference policy.

    The result is a lower bound. FSDP2 keeps the reference policy in the host's memory. After it,
    verl loads the actor's weights in its model_dtype on the first rank, or on every rank if the
    embedding is tied. The service, Ray and the processes themselves need more.
    """
    if machine.cluster is not None or model.parameters is None:
        return
    actor, ref = recipe.actor_rollout_ref.actor, recipe.actor_rollout_ref.ref
    ranks = int(recipe.trainer.n_gpus_per_node)
    loading = ranks if model.config.get("tie_word_embeddings", False) else 1
    weights = loading * model.parameters * _width(actor.fsdp_config.model_dtype)
    reference = 0
    if has_reference(recipe) and recipe.actor_rollout_ref.model.lora_rank == 0:
        reference = model.parameters * _width(ref.fsdp_config.model_dtype)
        reference //= int(recipe.trainer.nnodes)
    needed = weights + reference
    shown = (
        f"{machine.memory_bytes / _GB:.0f} GB; loading takes at least {needed / _GB:.1f} GB: "
        f"{weights / _GB:.1f} for the actor's weights, {reference / _GB:.1f} for the reference "
        "policy"
    )
    if needed > machine.memory_bytes:
        yield error(
            "memory",
            f"{shown}. Use a machine with more memory, or halve the reference policy: "
            "actor_rollout_ref.ref.fsdp_config.model_dtype=bf16",
        )
    else:
        yield ok("memory", shown)


def has_reference(recipe: DictConfig) -> bool:
    """Whether the update compares the policy with a reference policy."""
    return bool(recipe.actor_rollout_ref.actor.use_kl_loss or recipe.algorithm.use_kl_in_reward)


def shared_memory(recipe: DictConfig, machine: Machine, _model: Model) -> Iterator[Finding]:
    """/dev/shm has room for Ray's object store; otherwise Ray puts the store on the disk."""
    if machine.cluster is not None:
        return
    declared = recipe.ray_kwargs.ray_init.get("object_store_memory")
    # Ray's default is 30 % of the memory. The check asks for 10 GB of it at most.
    default = min(int(0.3 * machine.memory_bytes), 10 * _GB)
    wanted = default if declared is None else int(declared)
    free = machine.shared_memory_bytes
    if free < wanted:
        yield warning(
            "shared memory",
            f"{free / _GB:.1f} GB free in /dev/shm, and Ray's object store takes "
            f"{wanted / _GB:.1f}: it will be on the disk, which is slow. Docker: --shm-size="
            f"{-(-wanted // _GB) + 1}g; or set +ray_kwargs.ray_init.object_store_memory=BYTES",
        )
    else:
        yield ok("shared memory", f"{free / _GB:.1f} GB free in /dev/shm")


def open_files(_recipe: DictConfig, machine: Machine, _model: Model) -> Iterator[Finding]:
    """A process may open enough files for Ray and the connections of many rollouts."""
    if machine.open_files < OPEN_FILES:
        yield warning(
            "open files",
            f"a process may open {machine.open_files}, and Ray recommends {OPEN_FILES}: it may "
            f"lose connections; raise the hard limit: ulimit -n {OPEN_FILES} as root, "
            "/etc/security/limits.conf, or docker run --ulimit nofile",
        )
    else:
        yield ok("open files", f"{min(machine.open_files, 65536)}")


def disk(recipe: DictConfig, machine: Machine, model: Model) -> Iterator[Finding]:
    """The disk has space for logs, and for all checkpoints that exist at the same time."""
    full = machine.disk_bytes < FREE_DISK_BYTES
    if full:
        yield error(
            "disk",
            f"{machine.disk_bytes / _GIB:.1f} GiB free on the disk of {folders.ROOT.name}/, a run "
            f"needs at least {FREE_DISK_BYTES / _GIB:.0f} GiB for checkpoints and logs; free some "
            "space",
        )
    count = checkpoints_at_once(recipe)
    if model.parameters is None or not count:
        if not full:
            yield ok("disk", f"{machine.disk_bytes / _GB:.0f} GB free")
        return
    least, most = (count * model.parameters * width for width in _checkpoint_widths(recipe))
    free = machine.checkpoint_disk_bytes
    shown = (
        f"{free / _GB:.0f} GB free where checkpoints go, and {count} of "
        f"{model.parameters / 1e6:,.0f} million parameters take {least / _GB:.1f} to "
        f"{most / _GB:.1f} GB"
    )
    remedy = (
        "free some space, choose another folder (trainer.default_local_dir=FOLDER), or keep fewer "
        "checkpoints (seal.checkpoints)"
    )
    if free < least:
        yield error("checkpoints", f"{shown}; {remedy}")
    elif free < most:
        yield warning("checkpoints", f"{shown}; {remedy}")
    else:
        yield ok("checkpoints", shown)


def checkpoints_at_once(recipe: DictConfig) -> int:
    """Checkpoints that the run adds and that exist at the same time, one being saved included."""
    kept = recipe.seal.checkpoints
    count = _saves(recipe)
    if not count:
        return 0
    if kept.keep_last is not None:
        count = min(count, int(kept.keep_last) + int(bool(kept.keep_best)) + 1)
    if recipe.trainer.resume_mode != "disable":
        count -= len(steps(checkpoint_folder(recipe)))
    return max(1, count)


def _saves(recipe: DictConfig) -> int:
    """How often the run saves; for MANY_STEPS if its number of steps is not known."""
    every = int(recipe.trainer.save_freq)
    if every < 1:
        return 0
    try:
        all_steps = total_steps(recipe)
    except RunError:  # `inputs.data` reports the data file.
        all_steps = None
    # verl saves after the last step too.
    return -(-(MANY_STEPS if all_steps is None else all_steps) // every)


def _checkpoint_widths(recipe: DictConfig) -> tuple[int, int]:
    """Least and most bytes per parameter: float32 weights, and Adam's moments if all train."""
    return (4, 8) if recipe.actor_rollout_ref.model.lora_rank > 0 else (12, 16)


def _width(dtype: str | None) -> int:
    return 2 if dtype in ("bf16", "bfloat16", "fp16", "float16") else 4

"""Checks of packages that install.sh does not pin, and of the compiler for kernels."""

from collections.abc import Iterator

from omegaconf import DictConfig

from seal.launch.check.finding import Finding, error, ok, warning
from seal.launch.check.machine import Machine
from seal.launch.check.model import Model

FLASH_ATTENTION = "flash_attn"
LINEAR_ATTENTION = "fla.ops.gated_delta_rule"
FLASH = "flash_attention_2"
WITHOUT_FLASH = "actor_rollout_ref.model.override_config.attn_implementation=sdpa"


def needed_modules(recipe: DictConfig, model: Model) -> tuple[str, ...]:
    """Modules to import on trial: they are compiled against torch, so they may fail to import."""
    flash = (FLASH_ATTENTION,) if attention(recipe) == FLASH else ()
    linear = (LINEAR_ATTENTION,) if on_cuda(recipe) and model.linear_attention else ()
    return flash + linear


def flash_attention(recipe: DictConfig, machine: Machine, model: Model) -> Iterator[Finding]:
    """flash-attn if the recipe asks for it; exp/SEAL.yaml does if it is installed."""
    if FLASH_ATTENTION not in needed_modules(recipe, model):
        if on_cuda(recipe):
            yield warning(
                "flash-attn",
                f"not used, {attention(recipe)} instead: the same results up to rounding, but "
                "slower with long dialogues (docs/gpu.md)",
            )
        return
    failure = machine.import_failures[FLASH_ATTENTION]
    if failure:
        yield error(
            "flash-attn",
            f"does not import ({failure}); remove it (.venv/bin/pip uninstall flash-attn), install "
            f"it as docs/running.md says, or override: {WITHOUT_FLASH}",
        )
    else:
        yield ok("flash-attn", "imports")


def linear_attention(recipe: DictConfig, machine: Machine, model: Model) -> Iterator[Finding]:
    """flash-linear-attention if the model has layers of linear attention."""
    if LINEAR_ATTENTION not in needed_modules(recipe, model):
        return
    failure = machine.import_failures[LINEAR_ATTENTION]
    subject, install = "linear attention", ".venv/bin/pip install flash-linear-attention==0.5.2"
    if not failure:
        yield ok(subject, "flash-linear-attention imports")
    elif recipe.actor_rollout_ref.model.use_remove_padding:
        yield error(
            subject,
            f"{model.path} has layers of linear attention, and flash-linear-attention does not "
            f"import ({failure}); without it a packed dialogue changes the log probabilities of "
            f"the next one. {install}, or override: "
            "actor_rollout_ref.model.use_remove_padding=false",
        )
    else:
        yield warning(
            subject, f"flash-linear-attention does not import ({failure}); it is faster: {install}"
        )


def compiler(recipe: DictConfig, machine: Machine, _model: Model) -> Iterator[Finding]:
    """The compiler that Triton needs at the first use of a kernel."""
    if not on_cuda(recipe) or machine.cluster is not None:
        return
    lacks = [] if machine.compiler else ["a C compiler (gcc)"]
    lacks += [] if machine.python_headers else ["Python's headers (Python.h)"]
    if lacks:
        yield error(
            "compiler",
            f"Triton compiles kernels at run time and needs {' and '.join(lacks)}; on Debian: "
            "apt-get install gcc python3.11-dev",
        )
    else:
        yield ok("compiler", f"{machine.compiler}, Python.h")


def attention(recipe: DictConfig) -> str:
    """The trainer's attention, as transformers names it; verl's default if the recipe sets none."""
    settings = recipe.actor_rollout_ref.model.override_config
    return str(settings.get("attn_implementation", FLASH))


def on_cuda(recipe: DictConfig) -> bool:
    """Whether the recipe trains on NVIDIA's GPUs."""
    return bool(recipe.trainer.device == "cuda")

"""How much GPU memory a recipe needs, and the largest share that is left for the rollout engine.

    .venv/bin/python scripts/memory_plan.py --backbone qwen2.5-7b --gpus 4 --memory 80
    .venv/bin/python scripts/memory_plan.py --table          # the tables of docs/gpu.md

--memory is in GiB, as GPUs are sold; printed are GB of 10^9 bytes. The formulas are in
`seal.launch.memory`. `--simulate` adds a second source: an update on torch's fake tensors
(`scripts/memory_simulation.py`), a minute or less. Overrides of the recipe follow --.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from omegaconf import OmegaConf
from rich.console import Console

from benchmarks.output import figures_table, markdown
from seal import ROOT
from seal.launch.memory import Offload, Plan, Settings, UnplannedError, plan, settings_of
from seal.launch.recipe import EXP, RecipeError, load_recipe
from seal.launch.shapes import CONFIGS, Config, config_of, shape_of

SIMULATION = ROOT / "scripts/memory_simulation.py"
BACKBONES = ("qwen2.5-3b", "qwen2.5-7b", "qwen3.5-4b", "toolace-2-8b", "smollm2-135m")
GPUS = (1, 2, 4, 8)
MEMORY_GIB = (40, 80)
OFFLOADS: tuple[Offload, ...] = ("none", "between", "always")
"""From the fastest to the slowest."""


def planned(backbone: str, gpus: int, overrides: Sequence[str]) -> tuple[Config, Settings, Plan]:
    """The model, the settings and the plan of exp/SEAL.yaml with a backbone.

    Raises:
        RecipeError: An override cannot be used, or the model is unknown.
        UnplannedError: The formulas do not hold for the recipe.
    """
    chosen = [f"backbone={backbone}", f"trainer.n_gpus_per_node={gpus}", *overrides]
    recipe = load_recipe(EXP / "SEAL.yaml", chosen)
    path = str(recipe.actor_rollout_ref.model.path)
    config = config_of(path, ROOT)
    if config is None:
        raise RecipeError(f"{path}: neither a folder with config.json nor in seal/launch/shapes.py")
    settings = settings_of(recipe)
    return config, settings, plan(shape_of(config), settings)


def table(memory_gib: int) -> str:
    """Each backbone on each number of GPUs: the least offloading and the largest share that fit."""
    # Of a backbone's group only the model matters here.
    settings = settings_of(load_recipe(EXP / "SEAL.yaml", []))
    rows = []
    for backbone in BACKBONES:
        group = OmegaConf.load(EXP / "backbone" / f"{backbone}.yaml")
        shape = shape_of(CONFIGS[group.actor_rollout_ref.model.path])
        row = [backbone]
        for gpus in GPUS:
            row.append("does not fit")
            for offload in OFFLOADS:
                needs = plan(shape, replace(settings, gpus=gpus, offload=offload))
                share = needs.largest_utilization(memory_gib * 2**30)
                if share is not None:
                    row[-1] = f"{share:.2f}, {offload}, {_gb(needs.update)}"
                    break
        rows.append(row)
    return "\n".join(markdown([f"{memory_gib} GiB a GPU", *(f"{n} x" for n in GPUS)], rows))


def simulated(config: Config, settings: Settings) -> dict[str, int]:
    """Bytes by kind at the peak of an update, from torch's tracker.

    Raises:
        RecipeError: The simulation failed; its last line says why.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "config.json")
        file.write_text(json.dumps(config), "utf-8")
        command = [sys.executable, str(SIMULATION), str(file)]
        command += [f"--ranks={settings.gpus}", f"--tokens={settings.tokens}"]
        command += [f"--own={settings.own}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RecipeError(f"the simulation failed: {done.stderr.strip().splitlines()[-1]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def show(needs: Plan, settings: Settings, memory_gib: float, console: Console) -> None:
    """Print the parts of both moments, and what fits."""
    memory = round(memory_gib * 2**30)
    kept = settings.offload == "none"
    engine = round(needs.utilization * memory)
    aside = needs.update - _sum(needs)
    parts = (
        ("weights, float32", needs.weights, needs.weights if kept else 0),
        ("gradients, float32", needs.gradients, 0),
        ("optimizer, float32", needs.optimizer, needs.optimizer if kept else 0),
        ("activations", needs.activations, 0),
        ("logits", needs.logits, 0),
        (f"rollout engine ({needs.utilization:.2f})", 0, engine),
        ("aside (assumed)", aside, aside),
        ("together", needs.update, needs.wake(memory)),
    )
    rows = [(name, _gb(update), _gb(wake)) for name, update, wake in parts]
    title = f"GB of one GPU of {settings.gpus}, {_gb(memory)} there"
    console.print(figures_table(("", "update", "wake-up"), rows, title))
    console.print(
        f"offload: {settings.offload}; micro-batch: {settings.tokens} tokens, {settings.own} of "
        f"them the policy's; weights of the rollout engine: {_gb(needs.engine_weights)} GB, at "
        f"most {_gb(needs.transfer)} GB more while they are sent",
        highlight=False,
        soft_wrap=True,
    )
    share = needs.largest_utilization(memory)
    if share is None:
        console.print("DOES NOT FIT: more GPUs, or offloading (docs/gpu.md)")
    else:
        fits = "fits" if needs.utilization <= share else "DOES NOT FIT"
        console.print(f"largest gpu_memory_utilization: {share:.2f}; the recipe's {fits}")


def _sum(needs: Plan) -> int:
    return needs.weights + needs.gradients + needs.optimizer + needs.activations + needs.logits


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f}"


def main(argv: Sequence[str]) -> int:
    """Read the command line and print a plan or the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backbone", choices=BACKBONES, default="qwen2.5-7b")
    parser.add_argument("--gpus", type=int, default=4, help="of the run (4)")
    parser.add_argument("--memory", type=float, default=80, help="GiB of each (80)")
    parser.add_argument(
        "--simulate", action="store_true", help="simulate an update on fake tensors, too"
    )
    parser.add_argument("--table", action="store_true", help="all backbones on 1 to 8 GPUs")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="after --: overrides")
    args = parser.parse_args(argv)
    console = Console(width=100)
    try:
        if args.table:
            print("\n\n".join(table(memory) for memory in MEMORY_GIB))
            return 0
        config, settings, needs = planned(args.backbone, args.gpus, args.overrides)
        show(needs, settings, args.memory, console)
        if args.simulate:
            sizes = simulated(config, settings)
            total = sizes.pop("total")
            parts = ", ".join(f"{kind} {_gb(size)}" for kind, size in sizes.items() if size > 5e7)
            ours = _gb(_sum(needs))
            console.print(
                f"simulated update: {_gb(total)} GB ({parts}); the closed form has {ours}",
                highlight=False,
                soft_wrap=True,
            )
    except (RecipeError, UnplannedError) as error:
        print(f"memory_plan: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

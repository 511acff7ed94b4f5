"""Measure some steps of exp/SEAL.yaml on this machine's GPUs, and verl's own loop beside them.

A model with random weights and the shape of a real Qwen2.5 is trained for a few steps, first by the
recipe (vLLM, verl and a BFCL service started for the run), then by verl's own single-turn loop on
the same model with the same prompts, as many rollouts and as many generated tokens. Printed are
tokens a second, the GPU's idle time, the transfer of weights and memory, each with the ratio of the
two. No model hub is needed. What the figures mean, and do not, is in docs/gpu.md.

With --trainer-only an update alone is measured, on recorded dialogues: for a machine with torch and
transformers and without verl, vLLM and Ray.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from seal.launch.processes import Family, tail
from seal.launch.recipe import RecipeError, load_recipe
from seal.loop_log import PHASES, ROLLOUTS, LineReader

if TYPE_CHECKING:
    from scripts import smoke_figures as smoke
else:  # when a script runs, `scripts` is a package of verl's
    import smoke_figures as smoke

ROOT = Path(__file__).resolve().parents[1]
RECIPE = ROOT / "exp/SEAL.yaml"
MODELS = Path("experiments/gpu_smoke_models")
SIZES = ("0.5b", "3b", "7b", "tiny")
# A processor has neither memory nor speed for the sizes of exp/machine/smoke.yaml.
CPU_SIZES = (
    "env_service.max_tokens_per_step=16",
    "data.train_batch_size=2",
    "data.dataloader_num_workers=0",
    "actor_rollout_ref.actor.ppo_mini_batch_size=2",
    "actor_rollout_ref.rollout.n=2",
    "actor_rollout_ref.rollout.max_num_seqs=8",
    "actor_rollout_ref.rollout.gpu_memory_utilization=0.2",
)
# Both loops run on this machine, whatever cluster the user's shell names.
OWN_RAY = {"RAY_ADDRESS": "local"}
REWARD = '''"""Reward of verl's own loop: random text passes nothing, here as in the other loop."""


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    return 0.0
'''


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Command line of the script."""
    parser = argparse.ArgumentParser(
        prog="gpu_smoke.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Everything after -- overrides the recipe of both loops the Hydra way, for example: "
        "\n-- actor_rollout_ref.rollout.gpu_memory_utilization=0.4",
    )
    parser.add_argument("--size", choices=SIZES, default="0.5b", help="shape of the model (0.5b)")
    parser.add_argument(
        "--gpus", type=int, choices=(1, 2, 4, 8), help="GPUs to use (all, down to a power of two)"
    )
    parser.add_argument("--steps", type=int, default=3, help="steps of each loop, at least 2 (3)")
    parser.add_argument(
        "--out",
        type=Path,
        help="folder of the results (experiments/gpu_smoke_SIZE_TIME); a loop that is measured "
        "there already is not run again",
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument(
        "--cpu",
        action="store_true",
        help="with --size tiny: try the script on a machine without a GPU; no figure of speed",
    )
    parser.add_argument(
        "--trainer-only",
        action="store_true",
        help="an update on recorded dialogues alone, without verl, vLLM and Ray",
    )
    parser.add_argument(
        "--dialogues", type=int, default=16, help="of an update, with --trainer-only (16)"
    )
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="after --: overrides")
    args = parser.parse_args(argv)
    if args.cpu != (args.size == "tiny"):
        parser.error("--cpu goes with --size tiny, and --size tiny with --cpu")
    if args.trainer_only and (args.overrides or args.gpus not in (None, 1)):
        parser.error("--trainer-only runs on one GPU and knows no recipe: no overrides, no --gpus")
    if args.steps < 2:
        parser.error("--steps: the first step warms everything up, so at least 2 are needed")
    return args


def smoke_overrides(args: argparse.Namespace, gpus: int) -> list[str]:
    """Overrides of exp/SEAL.yaml that both loops share."""
    machine = "[cpu,smoke]" if args.cpu else "smoke"
    overrides = [
        f"+machine={machine}",
        f"actor_rollout_ref.model.path={MODELS / args.size}",
        f"trainer.total_training_steps={args.steps}",
    ]
    if args.cpu:
        overrides += CPU_SIZES
    else:
        overrides.append(f"trainer.n_gpus_per_node={gpus}")
    return overrides + list(args.overrides)


def baseline_config(
    overrides: Sequence[str], folder: Path, response_tokens: int, val_files: str
) -> DictConfig:
    """The recipe's configuration as verl's own single-turn loop takes it.

    Same model, batch, optimiser and engines; verl's own trainer, agent loop, replay buffer and
    reward workers in the place of the project's.

    Args:
        overrides: Those of the other loop.
        folder: Has `prompts.parquet` and `reward.py`, and takes the outputs.
        response_tokens: What each rollout generates.
        val_files: A data file that verl reads although nothing is validated.
    """
    config = load_recipe(
        RECIPE,
        [
            *overrides,
            f"data.train_files={folder}/prompts.parquet",
            f"data.val_files={val_files}",
            "data.shuffle=false",
            f"data.max_response_length={response_tokens}",
            "reward.num_workers=1",
            f"reward.custom_reward_function.path={folder}/reward.py",
            "reward.custom_reward_function.name=compute_score",
            "actor_rollout_ref.rollout.agent.default_agent_loop=single_turn_agent",
            "actor_rollout_ref.rollout.agent.agent_loop_config_path=null",
            "trainer.experiment_name=verl_single_turn",
            "trainer.resume_mode=disable",
            f"trainer.default_local_dir={folder}/checkpoints",
            f"trainer.rollout_data_dir={folder}/rollouts",
            f"trainer.validation_data_dir={folder}/validation_log",
            "trainer.v1.trainer_mode=sync",
            "trainer.v1.sampler.custom_sampler.path=null",
            "trainer.v1.sampler.custom_sampler.name=null",
            "~trainer.v1.sampler.sampler_kwargs.max_failed_share",
        ],
    )
    OmegaConf.set_struct(config, False)
    for section in ("env_service", "seal", "launcher"):
        del config[section]
    del config.trainer["env_failure"]
    return config


def write_prompts(rollouts: Path, steps: int, path: Path) -> None:
    """The prompts that the project's loop sent, as a data set for verl, in the order of the steps.

    Each becomes one user message, so it has a few tokens more.
    """
    rows = []
    for step in range(1, steps + 1):
        lines = LineReader(rollouts / f"{step}.jsonl").new()
        rows += list({line["uid"].split("_")[0]: line["input"] for line in lines}.values())
    table = pa.table(
        {
            "data_source": ["gpu_smoke"] * len(rows),
            "prompt": [[{"role": "user", "content": text}] for text in rows],
            "reward_model": [{"style": "rule", "ground_truth": ""}] * len(rows),
        }
    )
    pq.write_table(table, path)


def follow(
    process: "subprocess.Popen[bytes]",
    metrics: Path,
    stall_s: float,
    on_step: Callable[[dict[str, Any]], None],
) -> smoke.Followed:
    """Read a loop's metrics as they come, until its process ends.

    Raises:
        SmokeError: No step ended for `stall_s` seconds.
    """
    followed, reader, since = smoke.Followed(), LineReader(metrics), time.monotonic()
    while True:
        ended = process.poll() is not None
        for line in reader.new():
            since = time.monotonic()
            followed.lines.append(line["data"])
            followed.seen.append(time.time())
            on_step(line)
        if ended:
            return followed
        if time.monotonic() - since > stall_s:
            raise smoke.SmokeError(f"no step ended for {stall_s:.0f} s (launcher.stall_timeout_s)")
        time.sleep(0.05)


def measure_seal(
    console: Console, overrides: Sequence[str], gpus: Sequence[Any], out: Path
) -> dict[str, Any]:
    """Run the recipe through the launcher; its figures, and where its outputs are.

    Raises:
        RecipeError: An override cannot be used.
        SmokeError: The run failed.
    """
    number = 1
    while (ROOT / "experiments" / (name := f"{out.name}.seal{number}")).exists():
        number += 1
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    own = [f"trainer.experiment_name={name}", f"env_service.env_url=http://127.0.0.1:{port}"]
    recipe = load_recipe(RECIPE, [*overrides, *own])
    loop = ROOT / recipe.seal.loop_dir
    console.print(f"\nexp/SEAL.yaml, {recipe.trainer.total_training_steps} steps")
    command = [sys.executable, "launcher.py", f"--conf={RECIPE.relative_to(ROOT)}", "--with-bfcl"]
    with smoke.GpuSampler(gpus) as sampler:
        # In a session of its own: Ctrl-C reaches this script, which passes it on once.
        process = subprocess.Popen(
            [*command, "--", *overrides, *own],
            cwd=ROOT,
            env={**os.environ, **OWN_RAY},
            start_new_session=True,
        )
        try:
            stall_s = 2 * float(recipe.launcher.stall_timeout_s)  # the launcher's own comes first
            followed = follow(process, loop.parent / "metrics.jsonl", stall_s, lambda line: None)
        finally:
            process.terminate()
            process.wait()
    if process.returncode != 0:
        raise smoke.SmokeError("the recipe's run failed; the launcher's reason stands above")
    written = smoke.generated_by_step(list(LineReader(loop / ROLLOUTS).new()))
    phases = list(LineReader(loop / PHASES).new())
    figures = smoke.loop_figures(
        followed, [sum(step) for step in written], len(gpus), sampler.samples
    )
    rollouts = [tokens for step in written for tokens in step]
    return {
        "figures": asdict(figures),
        "phases": smoke.idle_by_phase(phases, sampler.samples),
        "metrics": followed.lines,
        "mean_generated": sum(rollouts) / len(rollouts),
        "rollouts": str(recipe.trainer.rollout_data_dir),
        "val_files": str(recipe.data.val_files),
        "folder": str(loop.parent.relative_to(ROOT)),
    }


def measure_verl(
    console: Console,
    overrides: Sequence[str],
    gpus: Sequence[Any],
    out: Path,
    seal: dict[str, Any],
) -> dict[str, Any]:
    """Run verl's own single-turn loop on what the other loop has left behind.

    Raises:
        SmokeError: The run failed.
    """
    folder = out / "verl"
    folder.mkdir(exist_ok=True)
    (folder / "reward.py").write_text(REWARD, "utf-8")
    write_prompts(ROOT / seal["rollouts"], len(seal["metrics"]), folder / "prompts.parquet")
    settings = load_recipe(RECIPE, overrides).launcher
    tokens = round(seal["mean_generated"])
    config = baseline_config(overrides, folder, tokens, seal["val_files"])
    OmegaConf.save(config, folder / "config.yaml")
    metrics, log = folder / "metrics.jsonl", folder / "train.log"
    for path in (metrics, log):
        path.unlink(missing_ok=True)
    steps = config.trainer.total_training_steps
    console.print(
        f"\nverl's own single-turn loop, {steps} steps of {tokens} tokens a rollout (log: {log})",
        highlight=False,
        soft_wrap=True,
    )
    command = [sys.executable, "-m", "verl.trainer.main_ppo", f"--config-path={folder}"]
    command += ["--config-name=config", f"hydra.run.dir={folder}/hydra"]
    environment = {
        **{key: str(value) for key, value in settings.environment.items()},
        "VERL_FILE_LOGGER_PATH": str(metrics),
        "HYDRA_FULL_ERROR": "1",
        **OWN_RAY,
        "RAY_USAGE_STATS_ENABLED": "0",
    }

    def on_step(line: dict[str, Any]) -> None:
        data = line["data"]
        console.print(
            f"step {line['step']}/{steps}  generation {data['timing_s/gen']:.1f} s  "
            f"update {data['timing_s/update_actor']:.1f} s  step {data['timing_s/step']:.1f} s",
            highlight=False,
        )

    family = Family()
    try:
        with smoke.GpuSampler(gpus) as sampler:
            process = family.start(command, log, environment, ROOT)
            followed = follow(process, metrics, float(settings.stall_timeout_s), on_step)
    except smoke.SmokeError as error:
        raise smoke.SmokeError(f"verl's own loop: {error}; its log: {log}") from error
    finally:
        family.end()
    if process.returncode != 0:
        raise smoke.SmokeError(f"verl's own loop failed:\n{tail(log)}\n(log: {log})")
    # Every token of a response is the policy's: there is one message and no observation.
    rollouts = config.data.train_batch_size * config.actor_rollout_ref.rollout.n
    generated = [round(line["response_length/mean"] * rollouts) for line in followed.lines]
    figures = smoke.loop_figures(followed, generated, len(gpus), sampler.samples)
    return {"figures": asdict(figures), "metrics": followed.lines, "folder": str(folder)}


def main(argv: Sequence[str]) -> int:
    """Measure both loops; the exit code tells success, 2 that there is no GPU."""
    args = parse_arguments(argv)
    complaints = Console(stderr=True, soft_wrap=True, style="red")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    out = (args.out or ROOT / f"experiments/gpu_smoke_{args.size}_{stamp}").resolve()
    try:
        (_measure_update if args.trainer_only else _measure)(Console(), args, out)
    except KeyboardInterrupt:
        again = f"; to go on: --out {out}" if out.exists() else ""
        complaints.print(f"\ngpu_smoke: interrupted; nothing runs any more{again}", markup=False)
        return 130
    except (smoke.SmokeError, RecipeError, OSError) as error:
        complaints.print(f"gpu_smoke: {error}", markup=False, highlight=False)
        return 2 if isinstance(error, smoke.NoGpuError) else 1
    return 0


def _measure(console: Console, args: argparse.Namespace, out: Path) -> None:
    handles, names = ([], []) if args.cpu else smoke.find_gpus(args.gpus)
    overrides = smoke_overrides(args, len(handles))
    recipe = load_recipe(RECIPE, overrides)  # a misspelt override ends it here
    attention = recipe.actor_rollout_ref.model.override_config.attn_implementation
    out.mkdir(parents=True, exist_ok=True)
    smoke.same_settings(out / "overrides.json", overrides)
    # Torch comes with it: after everything that can be refused without.
    if TYPE_CHECKING:
        from scripts import smoke_models
    else:
        import smoke_models

    smoke_models.build(args.size, ROOT / MODELS / args.size)
    seal = smoke.once(out / "seal.json", lambda: measure_seal(console, overrides, handles, out))
    verl = smoke.once(
        out / "verl.json", lambda: measure_verl(console, overrides, handles, out, seal)
    )
    packages = ("torch", "vllm", "verl", "transformers", "ray")
    report = {
        "machine": {
            "device": f"{len(names)} x {names[0]}" if names else "processor (no figure of speed)",
            "versions": {name: version(name) for name in packages},
            "attention": attention,
        },
        "model": {"size": args.size, "parameters": smoke_models.parameters(args.size)},
        "steps": args.steps,
        "overrides": overrides,
        "loops": {"seal": seal, "verl": verl},
        "ratios": smoke.ratios(seal["figures"], verl["figures"]),
    }
    for path in (out / "report.json", args.json):
        if path is not None:
            path.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    smoke.print_tables(console, report)
    console.print(f"attention of both loops' trainers: {attention}")
    console.print(f"everything: {out}/report.json", highlight=False, soft_wrap=True)


def _measure_update(console: Console, args: argparse.Namespace, out: Path) -> None:
    # Torch comes with it.
    if TYPE_CHECKING:
        from scripts import smoke_update
    else:
        import smoke_update

    device = "cpu" if args.cpu else "cuda"
    page = smoke_update.report(
        args.size, device, args.dialogues, args.steps - 1, out, lambda said: console.print(said)
    )
    console.print(page, highlight=False, soft_wrap=True, markup=False)
    console.print(f"everything: {out}/update.json, {out}/update.md", soft_wrap=True)
    if args.json is not None:
        shutil.copyfile(out / "update.json", args.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

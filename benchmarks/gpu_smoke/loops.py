"""The two loops that are measured: the recipe, then verl's own single-turn loop on its prompts.

In: a `Case`. Out: each loop's figures, its metrics and where its outputs are.
"""

import itertools
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from benchmarks.gpu_smoke import figures
from benchmarks.gpu_smoke.configuration import RECIPE, Case, baseline_config
from benchmarks.gpu_smoke.figures import Followed
from benchmarks.gpu_smoke.kept import SmokeError
from benchmarks.gpu_smoke.sampling import GpuSampler
from benchmarks.launching import launched
from seal import ROOT
from seal.launch.listening import free_port
from seal.launch.processes import Family, tail
from seal.records.json_lines import LineReader
from seal.records.loop_log import PHASES, ROLLOUTS, group_of

# Both loops run on this machine, even if the user's shell names a cluster.
OWN_RAY = {"RAY_ADDRESS": "local"}
REWARD = '''"""Reward of verl's own loop: random text passes nothing, as in the other loop."""


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    return 0.0
'''


def write_prompts(rollouts: Path, steps: int, path: Path) -> None:
    """Write the prompts of the project's loop as a data set for verl, in the order of the steps.

    Each becomes one user message, so it has a few tokens more.
    """
    rows = []
    for step in range(1, steps + 1):
        lines = LineReader(rollouts / f"{step}.jsonl").new()
        rows += list({group_of(line["uid"]): line["input"] for line in lines}.values())
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
) -> Followed:
    """Read a loop's metrics while they are written, until its process ends.

    Raises:
        SmokeError: No step ended for `stall_s` seconds.
    """
    followed, reader, since = Followed(), LineReader(metrics), time.monotonic()
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
            raise SmokeError(f"no step ended for {stall_s:.0f} s (launcher.stall_timeout_s)")
        time.sleep(0.05)


def measure_seal(console: Console, measured: Case) -> dict[str, Any]:
    """Run the recipe through the launcher; its figures, and where its outputs are.

    Raises:
        RecipeError: An override cannot be used.
        SmokeError: The run failed.
    """
    stem = f"{measured.out.parent.name}_{measured.out.name}"
    names = (f"{stem}.{number}" for number in itertools.count(1))
    name = next(name for name in names if not (ROOT / "experiments" / name).exists())
    own = (f"trainer.experiment_name={name}", f"env_service.env_url=http://127.0.0.1:{free_port()}")
    recipe = measured.recipe(*own)
    loop = ROOT / recipe.seal.loop_dir
    console.print(f"\nexp/SEAL.yaml, {recipe.trainer.total_training_steps} steps")
    stall_s = 2 * float(recipe.launcher.stall_timeout_s)  # the launcher's own comes first
    overrides = [*measured.overrides, *own]
    with (
        GpuSampler(measured.gpus) as sampler,
        launched(RECIPE.relative_to(ROOT), overrides, OWN_RAY) as process,
    ):
        followed = follow(process, loop.parent / "metrics.jsonl", stall_s, lambda line: None)
    if process.returncode != 0:
        raise SmokeError("the recipe's run failed; the launcher's reason is above")
    written = figures.generated_by_step(list(LineReader(loop / ROLLOUTS).new()))
    phases = figures.by_phase(list(LineReader(loop / PHASES).new()), sampler.samples)
    means = figures.loop_figures(
        followed, [sum(step) for step in written], len(measured.gpus), sampler.samples
    )
    return {
        "figures": asdict(means),
        "agreement": figures.agreement(followed.lines),
        "phases": {name: asdict(phase) for name, phase in phases.items()},
        "metrics": followed.lines,
        "mean_generated": fmean(itertools.chain(*written)),
        "rollouts": str(recipe.trainer.rollout_data_dir),
        "folder": str(loop.parent.relative_to(ROOT)),
    }


def _prepared(measured: Case, seal: dict[str, Any]) -> tuple[Path, DictConfig]:
    """The folder of verl's own loop with all that it reads, and its configuration."""
    folder = measured.out / "verl"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "reward.py").write_text(REWARD, "utf-8")
    write_prompts(ROOT / seal["rollouts"], len(seal["metrics"]), folder / "prompts.parquet")
    config = baseline_config(measured, folder, round(seal["mean_generated"]))
    OmegaConf.save(config, folder / "config.yaml")
    return folder, config


def measure_verl(console: Console, measured: Case, seal: dict[str, Any]) -> dict[str, Any]:
    """Run verl's own single-turn loop on the prompts of the other loop.

    Raises:
        SmokeError: The run failed.
    """
    folder, config = _prepared(measured, seal)
    settings = measured.recipe().launcher
    metrics, log = folder / "metrics.jsonl", folder / "train.log"
    metrics.unlink(missing_ok=True)
    log.unlink(missing_ok=True)
    steps = config.trainer.total_training_steps
    console.print(
        f"\nverl's own single-turn loop, {steps} steps of {config.data.max_response_length} tokens "
        f"a rollout (log: {log})"
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
            f"update {data['timing_s/update_actor']:.1f} s  step {data['timing_s/step']:.1f} s"
        )

    family = Family()
    try:
        with GpuSampler(measured.gpus) as sampler:
            process = family.start(command, log, environment, ROOT)
            followed = follow(process, metrics, float(settings.stall_timeout_s), on_step)
    except SmokeError as error:
        raise SmokeError(f"verl's own loop: {error}; its log: {log}") from error
    finally:
        family.end()
    if process.returncode != 0:
        raise SmokeError(f"verl's own loop failed:\n{tail(log)}\n(log: {log})")
    # Every token of a response is the policy's: there is one message and no observation.
    rollouts = config.data.train_batch_size * config.actor_rollout_ref.rollout.n
    generated = [round(line["response_length/mean"] * rollouts) for line in followed.lines]
    means = figures.loop_figures(followed, generated, len(measured.gpus), sampler.samples)
    return {"figures": asdict(means), "metrics": followed.lines, "folder": str(folder)}

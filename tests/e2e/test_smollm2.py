"""A real language model through the loop: two steps of exp/smollm2.yaml from the raw model."""

import re
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pytest
import real_tokenizers
from get_smollm2 import GGUF
from short_run import CORRELATION, ROOT, read_lines
from transformers import AutoTokenizer

from seal.launch.listening import free_port
from seal.launch.recipe import load_recipe

RECIPE = ROOT / "exp/smollm2.yaml"
MODEL = "experiments/e2e_smollm2"
TASKS = "experiments/e2e_smollm2_tasks.parquet"
NAME = "e2e_smollm2_run"
STEPS = 2
ROLLOUTS = 4

pytestmark = pytest.mark.e2e


@dataclass(frozen=True)
class Finished:
    """What a run left behind."""

    metrics: list[dict[str, Any]]
    """Of each step."""
    dialogues: list[str]
    """Of all steps, as the policy saw them, without special tokens."""


@pytest.fixture(scope="module")
def finished() -> Finished:
    gguf = real_tokenizers.PACKAGES / GGUF
    pd.read_parquet(ROOT / "data/smollm2_train.parquet").head(2).to_parquet(ROOT / TASKS)
    command = [
        *(sys.executable, "launcher.py", f"--conf={RECIPE}", "--with-bfcl", "--"),
        f"trainer.experiment_name={NAME}",
        f"env_service.env_url=http://127.0.0.1:{free_port()}",
        f"actor_rollout_ref.model.path={MODEL}",
        f"launcher.build_policy='scripts/get_smollm2.py --gguf {gguf} --out {MODEL}'",
        f"data.train_files={TASKS}",
        f"data.val_files={TASKS}",
        "data.train_batch_size=2",
        "actor_rollout_ref.rollout.n=2",
        "actor_rollout_ref.actor.ppo_mini_batch_size=2",
        f"trainer.total_training_steps={STEPS}",
        # No validation, which would take longer than the steps, and no checkpoint.
        "seal.start_gate=null",
        "trainer.val_before_train=False",
        "trainer.test_freq=-1",
        "trainer.save_freq=-1",
        "seal.checkpoints.keep_best=false",
        # The raw model passes nothing, so what moves it is the entropy of its answers.
        "actor_rollout_ref.actor.entropy_coeff=0.01",
        "actor_rollout_ref.actor.optim.lr=1e-4",
        "env_service.max_tokens_per_step=48",
        # Rollout engine and actor compute the same only in the same precision, which is this one.
        "actor_rollout_ref.rollout.dtype=float32",
        "actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=float32",
        # Has verl compute the actor's own probabilities, too.
        "algorithm.rollout_correction.bypass_mode=false",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    folder = ROOT / "experiments" / NAME
    lines = [line["data"] for line in read_lines(folder / "metrics.jsonl")]
    rollouts = [
        line
        for step in range(1, STEPS + 1)
        for line in read_lines(folder / f"rollouts/{step}.jsonl")
    ]
    return Finished(
        metrics=[line for line in lines if CORRELATION in line],
        dialogues=[line["input"] + line["output"] for line in rollouts],
    )


def test_rollout_and_actor_agree_before_and_after_an_update(finished: Finished) -> None:
    first, second = finished.metrics
    assert first["actor/grad_norm"] > 0
    assert first[CORRELATION] > 0.9999
    assert second[CORRELATION] > 0.9999


def test_dialogues_are_those_that_the_template_writes(finished: Finished) -> None:
    tokenizer = AutoTokenizer.from_pretrained(ROOT / MODEL)
    model = load_recipe(RECIPE, []).actor_rollout_ref.model
    tokenizer.chat_template = model.custom_chat_template
    assert len(finished.dialogues) == STEPS * ROLLOUTS
    for dialogue in finished.dialogues:
        parts = re.split(r"(?:^|\n)(system|user|assistant|tool)\n", dialogue)
        messages = [
            {"role": role, "content": content}
            for role, content in zip(parts[1::2], parts[2::2], strict=True)
        ]
        # The tools stand in the system message as the template has written them.
        ids = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)
        assert tokenizer.decode(ids, skip_special_tokens=True).strip() == dialogue.strip()
        assert {"system", "user", "assistant"} <= {message["role"] for message in messages}

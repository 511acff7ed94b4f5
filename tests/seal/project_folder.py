"""A project folder for tests of the launcher: what it imports, and checkpoints to go on from.

The fixture `recipe` stands in launch/conftest.py.
"""

import json
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pyarrow
import pyarrow.parquet

ROOT = Path(__file__).resolve().parents[2]
REAL_TASKS = (
    "data.train_files=data/quickstart_train.parquet",
    "data.val_files=data/quickstart_eval.parquet",
    "data.synthetic_tasks=null",
    "data.synthetic_share=0",
    "launcher.build_tasks=null",
)
"""Overrides of the quickstart for tests that make no pool of synthetic tasks."""


def make_checkpoint(root: Path, step: int, name: str = "quickstart", shards: int = 1) -> Path:
    """A checkpoint with the files that tell whether it is whole, by name as verl writes them."""
    folder = root / f"experiments/{name}/checkpoints/global_step_{step}"
    (folder / "actor").mkdir(parents=True)
    (folder / "seal_state.json").write_text(json.dumps({"step": step}))
    for rank in range(shards):
        (folder / f"actor/model_world_size_{shards}_rank_{rank}.pt").touch()
    with zipfile.ZipFile(folder / "data.pt", "w") as archive:
        archive.writestr("data", "place in the data")
    return folder


def write_tasks(path: Path, tasks: Mapping[str, str]) -> None:
    """A data file: task id -> its first message."""
    rows = [
        {"prompt": [{"role": "user", "content": text}], "extra_info": {"task_id": name}}
        for name, text in tasks.items()
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def note_latest(checkpoint: Path) -> Path:
    """What verl writes when a checkpoint is done."""
    note = checkpoint.parent / "latest_checkpointed_iteration.txt"
    note.write_text(checkpoint.name.removeprefix("global_step_"))
    return note


def copy_project(folder: Path, trainer: str) -> Path:
    """The launcher and what it imports, with a program of the test's as training process."""
    shutil.copy(ROOT / "launcher.py", folder / "launcher.py")
    for part in ("seal", "exp"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "seal/train/main.py").write_text(trainer)
    # The trainer starts no workers, so nobody needs forks.
    (folder / "seal/train/cpu/fork_server.py").write_text("")
    (folder / "data").mkdir()
    for name in ("train", "eval"):
        shutil.copy(ROOT / f"data/quickstart_{name}.parquet", folder / "data")
    make_model(folder / "data/tiny_policy")
    return folder


def make_model(folder: Path, parameters: int = 1000, **config: object) -> Path:
    """A model's folder with the files that a run needs, by name; its weights are a file's size."""
    folder.mkdir(parents=True)
    settings = {"model_type": "qwen3", "dtype": "bfloat16", **config}
    (folder / "config.json").write_text(json.dumps(settings))
    with (folder / "model.safetensors").open("wb") as weights:
        weights.truncate(2 * parameters)
    (folder / "tokenizer.json").touch()
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    (folder / "generation_config.json").write_text("{}")
    return folder

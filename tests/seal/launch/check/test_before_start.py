"""All fast checks together, with every recipe of exp/ on machines made up and on this one."""

from dataclasses import replace
from pathlib import Path

import pytest
from check_material import MACHINE, QWEN_7B
from omegaconf import DictConfig
from project_folder import ROOT
from rich.console import Console

from seal.launch import folders, run
from seal.launch.check import before_start, software
from seal.launch.check.finding import Level, sentences
from seal.launch.check.machine import Machine
from seal.launch.check.model import Model
from seal.launch.folders import RunError
from seal.launch.gpus import Gpus
from seal.launch.processes import Family
from seal.launch.recipe import load_recipe
from seal.launch.record import Options

PROCESSOR = replace(
    MACHINE,
    gpus=Gpus(unknown="nvidia-ml-py is not installed"),
    gpu_files=0,
    torch="2.13.0+cpu",
    torch_cuda=None,
    import_failures=dict.fromkeys(MACHINE.import_failures, "it is not installed"),
    cpus=2,
    memory_bytes=24 * 10**9,
    disk_bytes=47 * 10**9,
    checkpoint_disk_bytes=47 * 10**9,
)
"""Two cores and no GPU."""


def with_flash(recipe: DictConfig) -> DictConfig:
    """As a recipe for GPUs is where flash-attn is installed."""
    if recipe.trainer.device == "cuda":
        recipe.actor_rollout_ref.model.override_config.attn_implementation = software.FLASH
    return recipe


@pytest.mark.parametrize("path", sorted((ROOT / "exp").glob("*.yaml")), ids=lambda path: path.stem)
def test_no_recipe_is_refused_on_the_machine_that_it_is_for(path: Path) -> None:
    recipe = with_flash(load_recipe(path, []))
    found = before_start.judged(recipe, MACHINE, QWEN_7B)
    assert [one for one in found if one.level is not Level.OK] == []
    on_processor = recipe.trainer.device == "cpu"
    model = replace(QWEN_7B, parameters=10**8) if on_processor else QWEN_7B
    errors = sentences(before_start.judged(recipe, PROCESSOR, model), Level.ERROR)
    assert (errors == []) is on_processor


def test_every_reason_is_named_at_once(seal: DictConfig) -> None:
    found = before_start.judged(with_flash(seal), PROCESSOR, QWEN_7B)
    refused = [one.subject for one in found if one.level is Level.ERROR]
    assert refused == ["GPUs", "torch", "flash-attn", "processors", "memory", "checkpoints"]


def test_a_run_is_refused_before_anything_is_started(
    seal: DictConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "ROOT", tmp_path)
    monkeypatch.setattr(before_start, "facts", lambda _: (PROCESSOR, QWEN_7B))
    seal.env_service.env_url = "http://127.0.0.1:9"
    family = Family()
    options = Options(Path("exp/SEAL.yaml"), (), (), with_bfcl=True)
    with pytest.raises(RunError) as refused:
        # Not run(), at whose end this process ignores signals, and its children with it.
        run.Launcher(Console(), with_flash(seal), options, family)._run()
    text = str(refused.value)
    assert text.startswith("this run cannot start:\n  GPUs: ")
    for subject in ("flash-attn", "processors", "data", "service"):
        assert f"\n  {subject}: " in text
    assert family.children == []
    assert not (tmp_path / "launcher_record/SEAL").exists()


def test_what_is_not_an_error_is_said(
    quick: DictConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = replace(PROCESSOR, open_files=1024)
    monkeypatch.setattr(before_start, "facts", lambda _: (slow, replace(QWEN_7B, parameters=None)))
    monkeypatch.setattr(before_start, "outside", lambda *_: iter(()))
    (warning,) = before_start.require(quick, with_bfcl=True, resume=False)
    assert warning.startswith("open files: a process may open 1024")
    quick.data.train_batch_size = 2
    with pytest.raises(RunError, match=r"cannot start: batches: data\.train_batch_size=2 is small"):
        before_start.require(quick, with_bfcl=True, resume=False)


def test_the_runs_folders_and_the_service_are_asked(recipe: DictConfig, tmp_path: Path) -> None:
    recipe.env_service.env_url = "http://127.0.0.1:9"
    recipe.seal.loop_dir = "kept"
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/notes").touch()
    outputs, service = before_start.outside(recipe, with_bfcl=False, resume=False)
    assert outputs.level is Level.ERROR and "seal.loop_dir=kept is not empty" in outputs.message
    assert service.level is Level.ERROR and "--with-bfcl starts one" in service.message
    resume, service = before_start.outside(recipe, with_bfcl=True, resume=True)
    assert resume.level is Level.ERROR and "nothing to resume" in resume.message
    # .venv-bfcl is not in this folder.
    assert service.level is Level.ERROR and "bash install.sh" in service.message


def test_this_machine_runs_what_it_has(quick: DictConfig, seal: DictConfig) -> None:
    machine, model = before_start.facts(quick)
    assert isinstance(machine, Machine) and isinstance(model, Model)
    assert machine.import_failures == {}
    assert sentences(before_start.judged(quick, machine, model), Level.ERROR) == []

"""Validations: rows that are played, with verl's own loader and trainer; and the start gate."""

from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import datasets
import pytest
from omegaconf import OmegaConf
from torchdata.stateful_dataloader import StatefulDataLoader
from typed import settings_with
from verl.trainer.ppo.v1 import PPOTrainerSync
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

from seal.launch.recipe import EXP, load_recipe
from seal.records.checkpoint_folder import NOTE
from seal.settings.reading import SettingsError
from seal.settings.rules import check_best_metric
from seal.settings.sections import Seal, Settings, StartGate, read_settings
from seal.train.errors import TrainingError
from seal.train.trainer import SealTrainer
from seal.train.validation import (
    check_gate_possible,
    check_start_gate,
    without_suites,
)

RARE = ["fixed", "held_out", "held_out_greedy"]
ROWS = {"development": 20, "fixed": 32, "held_out": 100, "held_out_greedy": 100}
"""Rows of data/smollm2_eval.parquet by suite."""
LAST = 20
BEST = "val-seal/development/category_average"
GATE = StartGate("fixed", min_pass_rate=0.2, min_mixed_group_share=0.6)
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata's own call


@pytest.fixture(scope="module")
def loader(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The loader of validation data, as verl makes it for exp/smollm2.yaml."""
    config = OmegaConf.create({"filter_overlong_prompts": False})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
        rows = RLHFDataset(str(EXP.parent / "data/smollm2_eval.parquet"), None, config)
    return StatefulDataLoader(
        dataset=rows,
        batch_size=len(rows),
        num_workers=0,
        shuffle=True,
        drop_last=False,
        collate_fn=collate_fn,
    )


def played(loader: Any) -> dict[str, int]:
    """Rows of each suite, over all batches."""
    return dict(Counter(info["suite"] for batch in loader for info in batch["extra_info"]))


# ---- the loader --------------------------------------------------------------------------------


def test_rows_of_rare_suites_are_left_out_and_the_others_are_whole(loader: Any) -> None:
    (whole,) = loader
    (batch,) = without_suites(loader, RARE)
    assert batch.keys() == whole.keys()
    assert {info["suite"] for info in batch["extra_info"]} == {"development"}
    assert set(batch["__rollout_n__"]) == {4}
    tasks = [info["task_id"] for info in batch["extra_info"]]
    assert len(tasks) == len(set(tasks)) == 20
    expected = {
        info["task_id"]: (source, list(prompt))
        for info, source, prompt in zip(
            whole["extra_info"], whole["data_source"], whole["raw_prompt"], strict=True
        )
        if info["suite"] == "development"
    }
    rows = zip(tasks, batch["data_source"], batch["raw_prompt"], strict=True)
    assert {task: (source, list(prompt)) for task, source, prompt in rows} == expected
    # Played again and again, and the whole loader is as it was.
    assert played(loader) == ROWS


def test_several_suites_stay_in_one_batch(loader: Any) -> None:
    some = without_suites(loader, ["held_out", "of another recipe"])
    assert len(some) == 1
    assert played(some) == played(some) == {k: n for k, n in ROWS.items() if k != "held_out"}


def test_without_rare_suites_the_loader_is_verls_own(loader: Any) -> None:
    assert without_suites(loader, []) is loader


def test_nothing_is_left_where_every_suite_is_rare(loader: Any) -> None:
    assert list(without_suites(loader, list(ROWS))) == []


# ---- the trainer -------------------------------------------------------------------------------


def trainer(loader: Any, step: int, rare: list[str]) -> SealTrainer:
    made = SealTrainer.__new__(SealTrainer)
    made._settings = settings_with({"seal.rare_suites": rare, "seal.best_metric": BEST})
    made.val_dataloader, made.global_steps, made.total_training_steps = loader, step, LAST
    return made


@pytest.mark.parametrize("step", [0, 1, LAST - 1, LAST])
@pytest.mark.parametrize("rare", [RARE, ["held_out"], []], ids=len)
def test_rare_suites_are_played_before_the_first_step_and_after_the_last(
    step: int, rare: list[str], loader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def validate(self: SealTrainer) -> dict[str, float]:
        seen.append(self.val_dataloader)
        return {BEST: 0.5}

    monkeypatch.setattr(PPOTrainerSync, "_validate", validate)
    made = trainer(loader, step, rare)
    assert made._validate() == {BEST: 0.5}
    (given,) = seen
    if step in (0, LAST) or not rare:
        assert given is loader
    else:
        assert played(given) == {suite: n for suite, n in ROWS.items() if suite not in rare}
    assert made.val_dataloader is loader


def test_the_loader_is_put_back_after_a_validation_that_fails(
    loader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: SealTrainer) -> dict[str, float]:
        assert self.val_dataloader is not loader
        raise RuntimeError("the service is gone")

    monkeypatch.setattr(PPOTrainerSync, "_validate", fail)
    made = trainer(loader, 5, RARE)
    with pytest.raises(RuntimeError, match="the service is gone"):
        made._validate()
    assert made.val_dataloader is loader


# ---- the start gate ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pass_rate", "mixed", "words"),
    [(0.1, 0.9, "pass_rate 0.10"), (0.9, 0.1, "mixed_group_share 0.10")],
)
def test_too_little_is_refused_with_its_figure(pass_rate: float, mixed: float, words: str) -> None:
    metrics = {"val-seal/fixed/pass_rate": pass_rate, "val-seal/fixed/mixed_group_share": mixed}
    with pytest.raises(TrainingError, match=words):
        check_start_gate(GATE, metrics)
    check_start_gate(None, metrics)


def test_enough_passes() -> None:
    check_start_gate(
        GATE, {"val-seal/fixed/pass_rate": 0.2, "val-seal/fixed/mixed_group_share": 0.6}
    )


def test_a_gate_on_no_suite_is_said() -> None:
    with pytest.raises(TrainingError, match="'fixed' is no suite"):
        check_start_gate(GATE, {"val-seal/benchmark/pass_rate": 1.0})


def gated_recipe(folder: Path, **keys: Any) -> Settings:
    trainer = {
        "default_local_dir": str(folder),
        "resume_mode": "auto",
        "val_before_train": False,
        **keys,
    }
    gate = {"seal.start_gate": asdict(GATE)}
    return settings_with({**{f"trainer.{key}": value for key, value in trainer.items()}, **gate})


def test_a_gate_without_a_validation_before_training_is_refused(tmp_path: Path) -> None:
    for keys in ({}, {"resume_mode": "disable"}):
        with pytest.raises(SettingsError, match="val_before_train=false"):
            check_gate_possible(gated_recipe(tmp_path, **keys))
    check_gate_possible(gated_recipe(tmp_path, val_before_train=True))
    gated = gated_recipe(tmp_path)
    check_gate_possible(replace(gated, seal=replace(gated.seal, start_gate=None)))


def test_a_resumed_run_has_passed_its_gate(tmp_path: Path) -> None:
    (tmp_path / NOTE).write_text("3")
    check_gate_possible(gated_recipe(tmp_path))
    check_gate_possible(gated_recipe(tmp_path / "new", resume_mode="resume_path"))
    with pytest.raises(SettingsError):
        check_gate_possible(gated_recipe(tmp_path, resume_mode="disable"))


# ---- what is refused ---------------------------------------------------------------------------


def recipe(best: str, rare: list[str]) -> Seal:
    return settings_with({"seal.best_metric": best, "seal.rare_suites": rare}).seal


@pytest.mark.parametrize(
    "best",
    [
        "val-seal/held_out/pass_rate",
        "val-seal/held_out/category_average",
        "val-core/held_out/multi_turn_base/reward/mean@4",
    ],
)
def test_a_best_checkpoint_by_a_rare_suite_is_refused(best: str) -> None:
    with pytest.raises(SettingsError) as refused:
        check_best_metric(recipe(best, RARE))
    assert f"seal.best_metric='{best}' belongs to a suite in seal.rare_suites" in str(refused.value)
    check_best_metric(recipe(best, ["fixed", "held_out_greedy"]))
    check_best_metric(recipe(best, []))


def test_a_metric_without_a_suite_is_left_to_the_first_validation() -> None:
    for best in ("reward", "val-seal", "held_out"):
        check_best_metric(recipe(best, RARE))


def test_smollm2s_recipe_is_possible_and_its_gate_is_asked_when_its_suite_is_played() -> None:
    loaded = load_recipe(EXP / "smollm2.yaml", [])
    check_best_metric(read_settings(loaded).seal)
    assert list(loaded.seal.rare_suites) == RARE
    assert loaded.seal.best_metric == BEST
    assert loaded.seal.start_gate.suite in ROWS
    assert (Path(EXP.parent) / loaded.data.val_files).name == "smollm2_eval.parquet"
    # The validation after the last step: verl counts it from this.
    assert loaded.trainer.total_training_steps == LAST
    assert loaded.trainer.val_before_train and loaded.trainer.test_freq > 0
    loaded.seal.best_metric = "val-seal/held_out/category_average"
    with pytest.raises(SettingsError):
        check_best_metric(read_settings(loaded).seal)

"""Validations: which rows are played, with verl's own data set and loader, and their metrics."""

from collections import Counter
from pathlib import Path
from typing import Any

import datasets
import pytest
from omegaconf import DictConfig, OmegaConf
from torchdata.stateful_dataloader import StatefulDataLoader
from verl.trainer.ppo.v1 import PPOTrainerSync
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

from seal.launch.recipe import EXP, load_recipe
from seal.records.validation_log import Rollout
from seal.records.validation_statistics import AVERAGE, rates, task_results
from seal.train.trainer import SealTrainer
from seal.train.validation import (
    SuiteError,
    check_best_metric,
    validation_metrics,
    without_suites,
)

RARE = ["fixed", "held_out", "held_out_greedy"]
ROWS = {"development": 20, "fixed": 32, "held_out": 100, "held_out_greedy": 100}
"""Rows of data/smollm2_eval.parquet by suite."""
LAST = 20
BEST = "val-seal/development/category_average"
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
    made.config = OmegaConf.create({"seal": {"rare_suites": rare, "best_metric": BEST}})
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


# ---- metrics ----------------------------------------------------------------------------------


def test_the_best_checkpoint_is_chosen_by_the_average_that_the_summary_prints() -> None:
    tasks = [
        ("base", "a"),
        ("base", "a"),
        ("base", "b"),
        ("base", "b"),
        ("miss", "c"),
        ("miss", "c"),
    ]
    rewards = [1.0, 0.0, 1.0, 1.0, 0.0, 1.0]
    exit_statuses = ["max_model_len", *["completed"] * 5]
    groups, categories = [task for _, task in tasks], [category for category, _ in tasks]
    found = validation_metrics(
        suites=[*["benchmark"] * 6, "fixed"],
        categories=[*categories, "base"],
        groups=[*groups, "d"],
        rewards=[*rewards, 0.0],
        exit_statuses=[*exit_statuses, "step_limit"],
    )
    rollouts = [
        Rollout(1, 0, "benchmark", task, category, reward, ())
        for (category, task), reward in zip(tasks, rewards, strict=True)
    ]
    average = rates(task_results(rollouts))[AVERAGE].rate
    assert found["val-seal/benchmark/category_average"] == average == 0.625
    assert found["val-seal/benchmark/pass_rate"] == 4 / 6
    assert found["val-seal/benchmark/mixed_group_share"] == 2 / 3
    assert found["val-seal/benchmark/truncated_share"] == 1 / 6
    assert found["val-seal/benchmark/exit/max_model_len"] == 1 / 6
    assert found["val-seal/benchmark/exit/step_limit"] == 0.0
    assert found["val-seal/fixed/exit/step_limit"] == found["val-seal/fixed/truncated_share"] == 1.0
    assert found["val-seal/fixed/category_average"] == 0.0


# ---- what is refused ---------------------------------------------------------------------------


def recipe(best: str, rare: list[str]) -> DictConfig:
    return OmegaConf.create({"seal": {"best_metric": best, "rare_suites": rare}})


@pytest.mark.parametrize(
    "best",
    [
        "val-seal/held_out/pass_rate",
        "val-seal/held_out/category_average",
        "val-core/held_out/multi_turn_base/reward/mean@4",
    ],
)
def test_a_best_checkpoint_by_a_rare_suite_is_refused(best: str) -> None:
    with pytest.raises(SuiteError) as refused:
        check_best_metric(recipe(best, RARE))
    assert f"seal.best_metric='{best}' belongs to a suite in seal.rare_suites" in str(refused.value)
    check_best_metric(recipe(best, ["fixed", "held_out_greedy"]))
    check_best_metric(recipe(best, []))


def test_a_metric_without_a_suite_is_left_to_the_first_validation() -> None:
    for best in ("reward", "val-seal", "held_out"):
        check_best_metric(recipe(best, RARE))


def test_smollm2s_recipe_is_possible_and_its_gate_is_asked_when_its_suite_is_played() -> None:
    loaded = load_recipe(EXP / "smollm2.yaml", [])
    check_best_metric(loaded)
    assert list(loaded.seal.rare_suites) == RARE
    assert loaded.seal.best_metric == BEST
    assert loaded.seal.start_gate.suite in ROWS
    assert (Path(EXP.parent) / loaded.data.val_files).name == "smollm2_eval.parquet"
    # The validation after the last step: verl counts it from this.
    assert loaded.trainer.total_training_steps == LAST
    assert loaded.trainer.val_before_train and loaded.trainer.test_freq > 0
    loaded.seal.best_metric = "val-seal/held_out/category_average"
    with pytest.raises(SuiteError):
        check_best_metric(loaded)

"""Published keys of synthetic tasks: what they mean here, and which are refused."""

from pathlib import Path
from typing import Any

import pytest

from seal.launch.published_keys import apart, translate
from seal.launch.recipe import EXP, RecipeError, load_recipe

POOL = "data.synthetic_tasks=some"
RATIO, ORIGINAL = "mixture.synthetic_data_ratio", "mixture.use_original_tasks"


def loaded(*overrides: str) -> tuple[Any, list[str]]:
    notes: list[str] = []
    return load_recipe(EXP / "SEAL.yaml", overrides, say=notes.append), notes


def refused(*overrides: str) -> str:
    with pytest.raises(RecipeError) as failed:
        load_recipe(EXP / "SEAL.yaml", overrides)
    return str(failed.value)


@pytest.mark.parametrize(
    ("published", "share", "epochs"),
    [
        (("synthetic_data_ratio=1",), 1 / 2, "12"),
        (("task_manager.mixture.synthetic_data_ratio=0.5",), 1 / 3, "9"),
        (("+task_manager.mixture.synthetic_data_ratio=3", "task_manager.n=4"), 3 / 4, "24"),
        (("task_manager={mixture:{synthetic_data_ratio:0.25,shuffle:true}}",), 0.2, "8"),
        (("synthetic_data_ratio=2.0", "use_original_tasks=false"), 1.0, "12"),
        (("synthetic_data_ratio=1.0", "task_manager.mixture.use_original_tasks=False"), 1.0, None),
    ],
)
def test_a_ratio_is_a_share_of_each_batch(
    published: tuple[str, ...], share: float, epochs: str | None
) -> None:
    recipe, notes = loaded(POOL, *published)
    assert recipe.data.synthetic_share == pytest.approx(share)
    assert "task_manager" not in recipe
    (note,) = notes
    assert f"{share:.1%} of each batch" in note
    assert note.endswith(f"trainer.total_epochs={epochs}") if epochs else "total_epochs" not in note


def test_a_run_of_a_number_of_steps_is_told_the_number_of_steps() -> None:
    _, (note,) = loaded(POOL, "synthetic_data_ratio=0.5", "trainer.total_training_steps=15")
    assert note.endswith("trainer.total_training_steps=23")


@pytest.mark.parametrize(
    "published",
    [
        ("task_manager.n=0", "synthetic_data_ratio=0.0"),
        ("task_manager.n=0",),
        ("task_manager.grader.synthetic_grader=env", "task_manager.grader.original_grader=env"),
        ("task_manager.mixture.use_original_tasks=true",),
    ],
)
def test_nothing_synthetic_is_off(published: tuple[str, ...]) -> None:
    recipe, notes = loaded(*published)
    assert recipe == loaded()[0] and notes == []


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        (("synthetic_data_ratio=0.5",), "synthetic_data_ratio=0.5 needs a pool of synthetic tasks"),
        (("task_manager.n=3",), "scripts/explore.py --per-seed 3"),
        (("use_original_tasks=false", POOL), "leaves no task to train on"),
        (
            ("synthetic_data_ratio=1", "data.synthetic_share=0.25", POOL),
            "is data.synthetic_share=0.5, and the recipe has 0.25",
        ),
        (("task_manager.grader.synthetic_grader=llm-binary",), "a model's judgement is no reward"),
        (("task_manager.grader.original_grader=llm",), "a model's judgement is no reward"),
        (("task_manager.llm_client=qwen-plus",), "llm_client=qwen-plus is not taken over: give it"),
        (("task_manager.strategy_args.max_explore_step=30",), "--calls"),
        (("task_manager.strategy_args.exploration_llm_temperature=1.0",), "--temperature"),
        (("task_manager.mixture.shuffle=false",), "shuffle=false: tasks are always drawn at"),
        (("task_manager.bs=4",), "task_manager.bs=4 is not taken over: there is no such setting"),
        (("task_manager.m=0",), "task_manager.m=0 is not taken over"),
        (("synthetic_data_ratio=much",), "synthetic_data_ratio=much: expected a number"),
        (("synthetic_data_ratio=-1",), "synthetic_data_ratio=-1: expected a number of at least 0"),
        (("synthetic_data_ratio=nan",), "synthetic_data_ratio=nan: expected a number"),
        (("task_manager.n=true",), "task_manager.n=True: expected a whole number"),
        (("use_original_tasks=1",), "use_original_tasks=1: expected true or false"),
        (("task_manager=x",), "task_manager=x is not taken over"),
    ],
)
def test_what_cannot_be_taken_over_is_refused_with_a_sentence(
    overrides: tuple[str, ...], why: str
) -> None:
    assert why in refused(*overrides)


def test_every_key_that_cannot_be_taken_over_is_named() -> None:
    text = refused("task_manager.bs=4", "task_manager.strategy=random", "synthetic_data_ratio=1")
    assert all(name in text for name in ("task_manager.bs=4", "task_manager.strategy=random"))


def test_a_section_of_a_recipe_counts_and_the_command_line_wins(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "defaults: [SEAL, _self_]\n"
        "data: {synthetic_tasks: some}\n"
        "task_manager: {n: 0, mixture: {synthetic_data_ratio: 1.0, use_original_tasks: true}}\n"
    )
    assert load_recipe(path, []).data.synthetic_share == 0.5
    assert load_recipe(path, ["synthetic_data_ratio=3"]).data.synthetic_share == 0.75
    path.write_text("defaults: [SEAL, _self_]\nsynthetic_data_ratio: 1.0\n")
    with pytest.raises(RecipeError, match="needs a pool"):
        load_recipe(path, [])


def test_a_key_that_only_begins_like_one_is_left_alone() -> None:
    overrides = ["task_managers=1", "data.synthetic_data_ratio=1"]
    assert apart(overrides) == (overrides, {})
    assert apart(["~task_manager"]) == ([], {"": None})


def test_the_ratio_of_no_task_is_never_computed() -> None:
    recipe = load_recipe(EXP / "SEAL.yaml", [])
    assert translate({RATIO: 0, ORIGINAL: False}, recipe).problems

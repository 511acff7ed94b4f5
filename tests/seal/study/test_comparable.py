"""Runs that differ in more than recipe and seed are refused, and the difference is named."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from study_material import RECORD, compose, write_run

from seal.launch.recipe import load_recipe
from seal.launch.resume import flat
from seal.study.comparable import check, composed, types_of_the_seed
from seal.study.definition import Study, StudyError, load_study
from seal.study.launching import read_runs
from seal.study.logs import FINISHED, RunLogs

EXP = Path(__file__).resolve().parents[3] / "exp"
STUDY = Study(
    name="made",
    conf=Path("exp/made.yaml"),
    baseline="vanilla",
    recipes={"vanilla": ("seal.weights.w_max=1",), "seal": ()},
    seeds=(1, 2),
    suites=("fixed",),
)
Write = Callable[..., None]


def checked(root: Path, **other: Any) -> list[str]:
    """Write the study's four runs, the last one with a change, and check them."""
    for recipe, seed in STUDY.runs():
        config = {"seal.weights.w_max": 1.0} if recipe == "vanilla" else {}
        last = (recipe, seed) == ("seal", 2)
        changed = {**other, "config": {**config, **other.get("config", {})}} if last else {}
        scores = {2: {"fixed": {"multi_turn_base_1": [1.0]}}}
        write_run(
            root,
            STUDY.run_name(recipe, seed),
            seed,
            scores,
            **(changed or {"config": config}),
        )
    return check(STUDY, read_runs(root, STUDY), compose)


def test_recipes_and_seeds_may_differ(tmp_path: Path) -> None:
    assert checked(tmp_path) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"config": {"actor.lr": 2e-4}}, r"actor\.lr: 0\.0001 and 0\.0002"),
        ({"config": {"data.other": 5, "actor.new": 1}}, r"actor\.new: None and 1; data\.other"),
        # The seed sets this one.
        (
            {"config": {"data.seed": 5}},
            r"not made with the study's overrides .*data\.seed: 5, not 2",
        ),
        # What the recipes set: another value than they say, as of an earlier version of them.
        ({"config": {"seal.weights.w_max": 5.0}}, r"seal\.weights\.w_max: 1\.0 and 5\.0"),
        ({"record": {"versions": {"verl": "0.9.2"}}}, r"different versions, versions\.verl"),
        ({"record": {"data": {"data/train.parquet": "bb"}}}, "different data files"),
        ({"record": {"policy": {"model.safetensors": "bb"}}}, "different starting policies"),
        ({"record": {"policy": {}}}, "different starting policies, .*: none"),
        (
            {"record": {"policy": {**RECORD["policy"], "adapter.safetensors": "bb"}}},
            r"different starting policies, policy\.adapter\.safetensors: .*: none",
        ),
        ({"record": {"data": {"data/other.parquet": "aa"}}}, "different data files"),
        ({"record": {"interface_texts": "4567"}}, "different texts of the interface"),
        ({"record": {"service_versions": {"bfcl-eval": "1"}}}, "different versions of the service"),
        ({"dropped": 1}, r"lost groups unequally .* seal 2 of 32"),
    ],
)
def test_what_else_differs_is_refused_by_name(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(StudyError, match=said):
        checked(tmp_path, **change)


def test_what_a_resumed_launch_changed_counts(tmp_path: Path) -> None:
    checked(tmp_path)
    resumed = tmp_path / "launcher_record/made-seal-s2/resumed_1"
    resumed.mkdir()
    for name in ("config.yaml", "record.json"):
        text = (resumed.parent / name).read_text()
        (resumed / name).write_text(
            text.replace("total_training_steps: 2", "total_training_steps: 4")
        )
    with pytest.raises(StudyError, match="total_training_steps: 2 and 4"):
        check(STUDY, read_runs(tmp_path, STUDY), compose)


def test_the_projects_own_names_and_folders_may_differ() -> None:
    study = load_study(EXP / "study/tiny.yaml")
    runs = {}
    for recipe, seed in (("vanilla", 1), ("seal", 2)):
        name = study.run_name(recipe, seed)
        overrides = [*study.run_overrides(recipe, seed), f"trainer.experiment_name={name}"]
        config = load_recipe(EXP.parent / study.conf, overrides)
        config.seal.run_id = f"{name}-0123"
        values = dict(flat(OmegaConf.to_container(config)))
        runs[recipe, seed] = RunLogs(name, FINISHED, values, (RECORD,), (), {}, {})
    assert check(study, runs) == []


def test_files_that_tell_how_a_policy_was_made_may_differ(tmp_path: Path) -> None:
    policy = {**RECORD["policy"], "built.json": "with another time"}
    assert checked(tmp_path, record={"policy": policy}) == []


def test_runs_that_a_changed_study_would_make_otherwise_are_refused(tmp_path: Path) -> None:
    checked(tmp_path)
    changed = replace(STUDY, overrides=("actor.lr=5",))
    with pytest.raises(
        StudyError, match=r"made-vanilla-s1 was not made .*actor\.lr: 0.0001, not 5"
    ):
        check(changed, read_runs(tmp_path, changed), compose)


def test_another_commit_or_machine_is_told(tmp_path: Path) -> None:
    machine = {**RECORD["machine"], "cpu": "another"}
    git = {**RECORD["git"], "commit": "d" * 40, "changed": True, "untracked": ["seal/new.py"]}
    said = checked(tmp_path, record={"git": git, "machine": machine})
    assert [one.partition(":")[0] for one in said] == [
        "runs have different code, git.commit",
        "runs have different uncommitted code, git.changed",
        "runs have different uncommitted code, git.untracked",
        "runs have different machines, machine.cpu",
    ]


F32, BF16 = "float32", "bfloat16"
DTYPE = "rollout.dtype"
TYPED = replace(STUDY, recipes={**STUDY.recipes, "pinned": (f"{DTYPE}={BF16}",)})
"""The study with a recipe that does not leave its type to the processor."""


def asking(overrides: Sequence[str], dtype: str) -> dict[str, Any]:
    """The made-up recipe, which takes its type from the processor."""
    return {DTYPE: dtype, **compose(overrides, dtype)}


def typed(root: Path, types: dict[tuple[str, int], str]) -> dict[tuple[str, int], RunLogs]:
    """Finished runs that computed in these types."""
    for (recipe, seed), dtype in types.items():
        config = {"seal.weights.w_max": 1.0} if recipe == "vanilla" else {}
        scores = {2: {"fixed": {"multi_turn_base_1": [1.0]}}}
        name = STUDY.run_name(recipe, seed)
        write_run(root, name, seed, scores, config={**config, DTYPE: dtype})
    return {run: logs for run, logs in read_runs(root, TYPED).items() if run in types}


def test_types_may_differ_between_seeds_and_are_told(tmp_path: Path) -> None:
    types = {("vanilla", 1): BF16, ("seal", 1): BF16, ("vanilla", 2): F32, ("seal", 2): F32}
    assert check(STUDY, typed(tmp_path, types), asking) == [
        "seeds have different floating-point types: seed 1: bfloat16; seed 2: float32"
    ]


def test_types_may_not_differ_within_a_seed(tmp_path: Path) -> None:
    # Each run of seed 2 has the type of a run of seed 1.
    types = {("vanilla", 1): BF16, ("seal", 1): BF16, ("vanilla", 2): F32, ("seal", 2): BF16}
    with pytest.raises(
        StudyError,
        match="seed 2 computed in .*: made-vanilla-s2: float32; made-seal-s2: bfloat16",
    ):
        check(STUDY, typed(tmp_path, types), asking)


def test_a_type_that_the_recipe_does_not_ask_for_may_not_differ_between_seeds(
    tmp_path: Path,
) -> None:
    types = {("vanilla", 1): BF16, ("seal", 1): BF16, ("vanilla", 2): F32, ("seal", 2): F32}
    runs = typed(tmp_path, types)
    with pytest.raises(StudyError, match=f"{DTYPE}: {BF16} and {F32}"):
        check(STUDY, runs, compose)
    # Seed 1 is older than the study's line.
    with pytest.raises(StudyError, match=f"{DTYPE}: {BF16}, not {F32}"):
        check(replace(STUDY, overrides=(f"{DTYPE}={F32}",)), runs, asking)


def test_a_recipe_may_set_its_type(tmp_path: Path) -> None:
    runs = typed(tmp_path, {("vanilla", 1): F32, ("pinned", 1): BF16})
    assert check(TYPED, runs, asking) == []
    shutil.rmtree(tmp_path)
    wrong = typed(tmp_path, {("vanilla", 1): F32, ("pinned", 1): F32})
    with pytest.raises(StudyError, match=f"made-pinned-s1 was not made .*{DTYPE}: {F32}, not"):
        check(TYPED, wrong, asking)


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Overrides of a run on a processor for which recipes take a type."""

    def overrides(dtype: str, *run_and_begun: Any, study: Study = TYPED) -> list[str]:
        monkeypatch.setattr("seal.study.comparable.cpu_dtype", lambda: dtype)
        run, begun = run_and_begun
        return types_of_the_seed(study, begun, run, asking)

    return overrides


def test_a_run_takes_the_type_of_its_seed(tmp_path: Path, on: Callable[..., list[str]]) -> None:
    begun = typed(tmp_path, {("vanilla", 1): F32, ("seal", 2): BF16})
    assert on(F32, ("seal", 1), begun) == []
    assert on(BF16, ("seal", 1), begun) == [f"{DTYPE}={F32}"]
    assert on(BF16, ("vanilla", 2), begun) == []
    with pytest.raises(StudyError, match="made-vanilla-s2 has to compute in bfloat16, as made-sea"):
        on(F32, ("vanilla", 2), begun)


def test_a_type_that_recipe_or_study_set_stays(
    tmp_path: Path, on: Callable[..., list[str]]
) -> None:
    begun = typed(tmp_path, {("vanilla", 1): F32, ("pinned", 2): BF16})
    for dtype in (F32, BF16):
        assert on(dtype, ("pinned", 1), begun) == []
        assert on(dtype, ("seal", 2), begun) == []
        pinned = replace(STUDY, overrides=(f"{DTYPE}={BF16}",))
        assert on(dtype, ("seal", 1), begun, study=pinned) == []


def test_a_run_that_is_gone_on_with_keeps_its_own_type(
    tmp_path: Path, on: Callable[..., list[str]]
) -> None:
    begun = typed(tmp_path, {("vanilla", 1): BF16, ("seal", 1): F32})
    assert on(BF16, ("seal", 1), begun) == [f"{DTYPE}={F32}"]
    assert on(F32, ("seal", 1), begun) == []


def test_the_recipe_of_smollm2_asks_for_the_type() -> None:
    compose_it = composed(EXP / "smollm2.yaml")
    one, two = compose_it((), F32), compose_it((), BF16)
    assert one["actor_rollout_ref.rollout.dtype"] == F32
    asked = {key for key in one if one[key] != two[key]}
    assert "actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype" in asked
    assert {two[key] for key in asked} == {BF16}
    # A launch takes them as overrides.
    assert compose_it(tuple(f"{key}={F32}" for key in asked), BF16) == one

"""Runs that differ in more than recipe and seed are refused, and the difference is named."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from study_material import RECORD, compose, write_run

from seal.launch.processor import cpu_dtype
from seal.launch.recipe import load_recipe
from seal.launch.resume import flat
from seal.study.comparable import Compose, check, composed, precision, types_of_the_seed
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


DTYPE = "actor_rollout_ref.rollout.dtype"


def typed(root: Path, types: dict[tuple[str, int], str]) -> dict[tuple[str, int], RunLogs]:
    """The study's runs, of which some have begun and compute in a type."""
    for (recipe, seed), dtype in types.items():
        config = {"seal.weights.w_max": 1.0} if recipe == "vanilla" else {}
        scores = {2: {"fixed": {"multi_turn_base_1": [1.0]}}}
        name = STUDY.run_name(recipe, seed)
        write_run(root, name, seed, scores, config={**config, DTYPE: dtype})
    return read_runs(root, STUDY)


def test_precision_may_differ_between_seeds_and_is_told(tmp_path: Path) -> None:
    one, two = "bfloat16", "float32"
    runs = typed(
        tmp_path,
        {("vanilla", 1): one, ("seal", 1): one, ("vanilla", 2): two, ("seal", 2): two},
    )
    assert check(STUDY, runs, compose) == [
        "runs of different seeds have different floating-point types: "
        "made-vanilla-s1, made-seal-s1: bfloat16; made-vanilla-s2, made-seal-s2: float32"
    ]


def test_precision_may_not_differ_within_a_seed(tmp_path: Path) -> None:
    one, two = "bfloat16", "float32"
    # Each run of seed 2 has the type of a run of seed 1.
    runs = typed(
        tmp_path,
        {("vanilla", 1): one, ("seal", 1): one, ("vanilla", 2): two, ("seal", 2): one},
    )
    with pytest.raises(
        StudyError, match=r"made-vanilla-s2 and made-seal-s2 .*dtype: float32 and bfloat16"
    ):
        check(STUDY, runs, compose)


def here(dtype: str) -> Compose:
    """The made-up recipe on a processor for which it takes this type."""
    return lambda overrides: {DTYPE: dtype, **compose(overrides)}


def test_a_run_takes_the_type_of_its_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = typed(tmp_path, {("vanilla", 1): "float32", ("seal", 2): "bfloat16"})
    seeds = {seed: ("vanilla" if seed == 2 else "seal", seed) for seed in (1, 2)}
    assert types_of_the_seed(STUDY, runs, seeds[1], here("float32")) == []
    assert types_of_the_seed(STUDY, runs, seeds[1], here("bfloat16")) == [f"{DTYPE}=float32"]
    assert types_of_the_seed(STUDY, runs, seeds[2], here("bfloat16")) == []
    monkeypatch.setattr("seal.study.comparable.cpu_dtype", lambda: "float32")
    with pytest.raises(StudyError, match="made-seal-s2 computed in bfloat16, .* no instructions"):
        types_of_the_seed(STUDY, runs, seeds[2], here("float32"))
    # What a recipe sets is its own.
    variant = replace(STUDY, recipes={**STUDY.recipes, "seal": (f"{DTYPE}=bfloat16",)})
    assert types_of_the_seed(variant, runs, seeds[1], here("float32")) == []


def test_an_interrupted_run_keeps_its_type(tmp_path: Path) -> None:
    write_run(tmp_path, "made-seal-s1", 1, {}, config={DTYPE: "float32"}, done=False)
    runs = read_runs(tmp_path, STUDY)
    own = types_of_the_seed(STUDY, runs, ("seal", 1), here("bfloat16"))
    assert own == types_of_the_seed(STUDY, runs, ("vanilla", 1), here("bfloat16"))
    assert own == [f"{DTYPE}=float32"]
    assert types_of_the_seed(STUDY, runs, ("seal", 2), here("bfloat16")) == []


def on_a_processor_for(dtype: str) -> dict[str, Any]:
    """The recipe of SmolLM2 as it is where recipes take this type."""
    OmegaConf.register_new_resolver("cpu_dtype", lambda: dtype, replace=True)
    try:
        return dict(composed(EXP / "smollm2.yaml")(()))
    finally:
        OmegaConf.register_new_resolver("cpu_dtype", cpu_dtype, replace=True)


def test_precision_is_what_recipes_take_from_the_processor() -> None:
    one, two = on_a_processor_for("bfloat16"), on_a_processor_for("float32")
    differs = {key for key in one if one[key] != two[key]}
    assert "actor_rollout_ref.rollout.dtype" in differs
    assert differs == {key for key in precision(one) if one[key] == "bfloat16"}

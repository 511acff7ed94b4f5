"""Wrong values of a recipe are refused before anything starts, each with its key."""

import copy
import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from omegaconf import DictConfig, OmegaConf
from project_folder import ROOT

from seal.coevolution.weights import WeightConfig
from seal.launch import known_keys, values
from seal.launch import recipe as recipes
from seal.launch.recipe import EXP, RecipeError, load_recipe, refuse_contradictions
from seal.launch.verl_keys import ACTS_WITH, KINDS, NEVER_ACTS
from seal.settings.rules import contradictions
from seal.settings.sections import EnvService, Launcher, Seal, Settings, read_settings
from seal.study.definition import load_study

SIX = {
    "seed=abc": "seed=abc: expected a whole number",
    "trainer.total_epochs=abc": "trainer.total_epochs=abc: expected a whole number",
    "actor_rollout_ref.rollout.n=0": "rollout.n=0: expected a whole number of at least 2",
    "seal.weights.w_min=3": "seal.weights: expected 0 < w_min <= w_max < inf, got w_min=3.0",
    "seal.weights.scope=turns": "seal.weights.scope=turns: expected one of trajectory, turn",
    "seal.reward.mode=dense": "seal.reward.mode=dense: expected one of binary, capped, t3rl",
}


def problems(recipe: DictConfig, **changes: Any) -> list[str]:
    """What is said of a recipe; dots in keys are written as two underscores."""
    made = copy.deepcopy(recipe)
    for key, value in changes.items():
        OmegaConf.update(made, key.replace("__", "."), value, merge=False, force_add=True)
    verl = recipes._plain(recipes._verl_configuration(), "ppo_trainer")
    return values.problems(made, verl, recipes._plain(EXP, "SEAL"), recipes._verl_package())


@pytest.mark.parametrize("mode", [["--dry-run"], ["--check"], []], ids=["dry_run", "check", "run"])
def test_the_command_line_refuses_all_of_them_at_once(mode: list[str]) -> None:
    # A type error hides the range of its section, so the two of seal.weights are asked apart.
    some = [one for one in SIX if "scope" not in one]
    command = [sys.executable, "launcher.py", "--conf=exp/quickstart.yaml", *mode, "--", *some]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    for override in some:
        assert SIX[override] in done.stderr
    with pytest.raises(RecipeError) as refused:
        load_recipe(EXP / "quickstart.yaml", ["seal.weights.scope=turns"])
    assert SIX["seal.weights.scope=turns"] in str(refused.value)


@pytest.mark.parametrize("path", sorted((EXP / "study").glob("*.yaml")), ids=lambda path: path.stem)
def test_what_a_study_runs_is_accepted(path: Path) -> None:
    study = load_study(path)
    name = list(study.recipes)[-1]
    recipe = load_recipe(EXP.parent / study.conf, study.run_overrides(name, 1))
    refuse_contradictions(recipe)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seal__weights__scope": "turns"}, "seal.weights.scope=turns: expected one of"),
        ({"seal__weights__w_min": True}, "seal.weights.w_min=true: expected a number"),
        ({"seal__interface__hysteresis": 1}, "seal.interface.hysteresis must be in [0, 1), got 1"),
        ({"seal__exposure__share": 2}, "seal.exposure.share must be in [0, 1], got 2"),
        ({"seal__cascade_share": 2}, "seal.cascade_share must be in [0, 1], got 2"),
        ({"seal__weights__cascade_share": 0.5}, "seal.weights.cascade_share does not act"),
        ({"seal__interface__mine": 1}, "seal.interface.mine=1: nothing reads this key"),
        ({"seal__weights__utilities": {"passed": 1}}, "unknown diagnostic label 'passed'"),
        ({"seal__start_gate": {"suite": "x"}}, "seal.start_gate.min_pass_rate is missing"),
        ({"env_service__env_url": "here"}, "env_service.env_url=here: expected an address"),
        ({"env_service__tool_format": "xml"}, "env_service.tool_format=xml: expected one of herm"),
        ({"launcher__environment": {"A=B": 1}}, "launcher.environment.A=B=A=B: expected text of"),
        ({"trainer__experiment_name": "../x"}, "trainer.experiment_name='../x' cannot name a fol"),
        ({"trainer__experiment_name": 7}, "trainer.experiment_name=7: expected text, in quotes"),
        ({"trainer__logger": ["consol"]}, "trainer.logger[0]=consol: expected one of wandb"),
        ({"trainer__save_freq": 2.5}, "trainer.save_freq=2.5: expected a whole number"),
        ({"data__shuffle": "no"}, "data.shuffle=no: expected true or false"),
        ({"data__synthetic_tasks": "a b"}, "data.synthetic_tasks=a b: expected text of the form"),
        ({"data__synthetic_share": 1.5}, "data.synthetic_share=1.5: expected a number of at most"),
        ({"data__synthetic_refresh": 0}, "data.synthetic_refresh=0: expected a whole number"),
        ({"data__synthetic_steering": -1}, "synthetic_steering=-1: expected a number of at least"),
        ({"data__synthetic_choice": "all"}, "synthetic_choice=all: expected one of failures, sh"),
        ({"actor_rollout_ref__rollout__top_p": 0}, "rollout.top_p=0: expected a number above 0"),
        ({"actor_rollout_ref__rollout": 3}, "actor_rollout_ref.rollout=3: expected a section"),
        ({"algorithm__adv_estimator": "gae"}, "adv_estimator=gae: expected one of grpo"),
        # A field of verl's class that verl's file does not have.
        ({"actor_rollout_ref__rollout__enable_sleep_mode": 1}, "enable_sleep_mode=1: expected tr"),
        # A key in a section without a class: the kind of its default.
        ({"transfer_queue__metrics__port": "a"}, "transfer_queue.metrics.port=a: expected a whole"),
        ({"seal__reward__cap": 0.5}, "seal.reward.cap=0.5 does not act with seal.reward.mode=bin"),
        ({"actor_rollout_ref__actor__clip_ratio": 0.3}, "clip_ratio=0.3 does not act with"),
        ({"actor_rollout_ref__actor__grad_clip": 0.5}, "does not act: verl reads actor_rollout_r"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(
    quickstart: DictConfig, changes: dict[str, Any], said: str
) -> None:
    found = problems(quickstart, **changes)
    assert any(said in one for one in found), found


def test_a_value_of_the_right_kind_is_accepted(quickstart: DictConfig) -> None:
    for changes in (
        {"seal__weights__w_max": 3},
        {"trainer__total_training_steps": None},
        {"actor_rollout_ref__actor__clip_ratio": 0.3}
        | {f"actor_rollout_ref__actor__clip_ratio_{side}": None for side in ("low", "high")},
        {"seal__reward": {"mode": "capped", "cap": 0.5, "abstention_weight": 0.5}},
        {"launcher__environment": {"OMP_NUM_THREADS": 2}, "launcher__build_policy": None},
        {"trainer__logger": "console", "algorithm__rollout_correction": None},
    ):
        assert problems(quickstart, **changes) == [], changes


def test_contradictions_are_all_named(quickstart: DictConfig) -> None:
    made = copy.deepcopy(quickstart)
    made.trainer.val_before_train = False
    made.trainer.test_freq = -1
    made.seal.rare_suites = ["unseen"]
    made.trainer.v1.trainer_mode = "sync"
    with pytest.raises(RecipeError) as refused:
        refuse_contradictions(made)
    for key in ("seal.start_gate", "trainer.test_freq=-1", "seal.best_metric", "trainer_mode=sync"):
        assert key in str(refused.value)
    # A run that goes on has passed its gate.
    made.trainer.resume_mode = "auto"
    with pytest.raises(RecipeError) as refused:
        refuse_contradictions(made)
    assert "seal.start_gate" not in str(refused.value)
    refuse_contradictions(quickstart)


@pytest.mark.parametrize(
    ("changes", "reasons"),
    [
        ({}, []),
        ({"tasks": "a", "share": 0.5}, []),
        ({"tasks": "a", "share": 1, "refresh": 2, "choice": "shuffled"}, []),
        ({"share": 0.5}, ["synthetic_share=0.5 needs a pool"]),
        ({"tasks": "a"}, ["synthetic_tasks=a does not act with data.synthetic_share=0"]),
        ({"refresh": 1}, ["synthetic_refresh=1 does not act without a pool"]),
        (
            {"tasks": "a", "share": 1.0, "choice": "shuffled"},
            ["shuffled does not act with data.synthetic_refresh=null"],
        ),
        (
            {"share": 0.5, "refresh": 1},
            ["synthetic_share=0.5 needs", "synthetic_refresh=1 does not act"],
        ),
    ],
)
def test_settings_of_synthetic_tasks_go_together(
    quickstart: DictConfig, changes: dict[str, Any], reasons: list[str]
) -> None:
    made = copy.deepcopy(quickstart)
    # Whatever the quickstart has.
    none = {"tasks": None, "share": 0.0, "refresh": None, "choice": "failures"}
    for key, value in (none | changes).items():
        made.data[f"synthetic_{key}"] = value
    found = contradictions(read_settings(made))
    assert len(found) == len(reasons)
    assert all(reason in sentence for reason, sentence in zip(reasons, found, strict=True))


def sections(kind: type, key: str) -> dict[str, set[str]]:
    """The fields of a class and of the classes of its fields, by the key of their section."""
    found = {key: {field.name for field in fields(kind)}}
    for name, hint in get_type_hints(kind).items():
        for inner in (hint, *get_args(hint)):
            if isinstance(inner, type) and is_dataclass(inner):
                found |= sections(inner, f"{key}.{name}")
    return found


def test_the_settings_and_the_recipe_have_the_same_keys(quickstart: DictConfig) -> None:
    """A new setting is a field, and a line in exp/SEAL.yaml."""
    hints = {"env_service": EnvService, "seal": Seal, "launcher": Launcher}
    for key, kind in hints.items():
        for section, names in sections(kind, key).items():
            # The key of the cascade share is in `seal`, because the profile uses it, too.
            expected = names - ({"cascade_share"} if section == "seal.weights" else set())
            given = OmegaConf.select(quickstart, section)
            assert set(given) == expected, section
    assert {field.name for field in fields(Settings)} <= set(quickstart)
    assert read_settings(quickstart).seal.weights.cascade_share == WeightConfig().cascade_share


def test_every_key_of_the_tables_exists(quickstart: DictConfig) -> None:
    verl = recipes._plain(recipes._verl_configuration(), "ppo_trainer")
    known = set(known_keys.names(verl)) | set(known_keys.names(recipes._plain(EXP, "SEAL")))
    # They may be added, and are not in verl's files.
    added = {key for key in KINDS if ".mixed_precision." in key or key.startswith("ray_kwargs.")}
    added.add("actor_rollout_ref.model.override_config.attn_implementation")
    switches = [switch for switch, _ in ACTS_WITH.values()]
    assert {*KINDS, *ACTS_WITH, *switches, *NEVER_ACTS, *NEVER_ACTS.values()} - added <= known

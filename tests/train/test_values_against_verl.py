"""What the launcher says about values, held against verl: its choices, its classes, its checks."""

import contextlib
import dataclasses
import importlib
import inspect
import math
import re
from collections.abc import Iterator
from typing import get_args

import numpy as np
import pytest
import torch
from check_material import MACHINE, QWEN_7B
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.utils import need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config
from verl.utils.torch_dtypes import PrecisionType
from verl.utils.tracking import Tracking
from verl.workers.config import ActorConfig
from vllm.config.model import ModelDType

from seal.launch import recipe as recipes
from seal.launch import values
from seal.launch.check.batches import batches
from seal.launch.check.finding import Level
from seal.launch.known_keys import declared
from seal.launch.recipe import EXP, load_recipe
from seal.launch.resume import flat
from seal.launch.verl_keys import (
    KINDS,
    EnginePrecision,
    KlEstimate,
    Logger,
    LossAggregation,
    LossMode,
    Precision,
)
from seal.settings.sections import plain, read_settings
from seal.train.state import loop_config

# torch warns of itself while verl, for some values, imports its compiler.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")

WRONG: tuple[object, ...] = (
    "abc!",
    "",
    -1,
    0,
    10**30,
    1.5,
    math.nan,
    math.inf,
    [],
    ["a", 1],
    {"x": 1},
    None,
    True,
)
RECIPES = sorted(EXP.glob("*.yaml"))
BUILT = ("actor_rollout_ref.actor", "actor_rollout_ref.rollout", "algorithm")
"""Sections that verl makes objects of, and that need no model."""
SECONDS = ("launcher.stall_timeout_s", "trainer.env_failure.wait_s")
"""Keys that take any number, and have a whole one in the recipe."""
OWN_KEYS = frozenset(
    key
    for key, _ in flat(OmegaConf.to_container(OmegaConf.load(EXP / "SEAL.yaml"), resolve=False))
    if key.startswith(("seal.", "env_service.", "launcher.", "trainer.env_failure.", "data."))
    and "utilities" not in key
    and not key.endswith("environment")
)
"""Keys of this project, and those of `data` that it sets."""


@pytest.fixture(scope="module")
def loaded() -> list[DictConfig]:
    """Every recipe; composing one takes seconds."""
    return [load_recipe(path, []) for path in RECIPES]


def problems(recipe: DictConfig) -> list[str]:
    verl = recipes._plain(recipes._verl_configuration(), "ppo_trainer")
    return values.problems(recipe, verl, recipes._plain(EXP, "SEAL"), recipes._verl_package())


@contextlib.contextmanager
def changed(recipe: DictConfig, key: str, value: object) -> Iterator[None]:
    """The recipe itself with another value: a copy of its two thousand nodes takes long."""
    section, _, name = key.rpartition(".")
    node = OmegaConf.select(recipe, section) if section else recipe
    OmegaConf.set_struct(recipe, False)
    # OmegaConf may write a new value into the node that holds the old one.
    there, before = name in node, plain(node.get(name))
    node[name] = value
    try:
        yield
    finally:
        node[name] = before
        if not there:
            del node[name]


def keys_of(recipe: DictConfig) -> list[str]:
    """Keys without sections below, and some sections.

    Those of parts that never run are left out, and those of verl's profilers: no recipe has them
    on, and the classes of verl that read them check ranges of their own.
    """
    others = ("critic", "reward", "global_profiler", "distillation", "actor_rollout_ref.ref")
    own = ("seal.weights", "seal.interface", "seal.start_gate", "env_service", "launcher", "data")
    plain = OmegaConf.to_container(recipe)
    leaves = (
        key for key, _ in flat(plain) if not key.startswith(others) and ".profiler." not in key
    )
    return sorted({*(key for key in leaves if not key.endswith("_target_")), *own})


def train_with(recipe: DictConfig) -> None:
    """What the training process makes of a recipe before it starts a worker."""
    loop_config(read_settings(recipe).seal)
    if any(one.level is Level.ERROR for one in batches(recipe, MACHINE, QWEN_7B)):
        return  # The launcher refuses it, too.
    for section in BUILT:
        omega_conf_to_dataclass(OmegaConf.select(recipe, section))
    validate_config(recipe, need_reference_policy(recipe), False)


VALUES = st.sampled_from(WRONG) | st.integers() | st.floats() | st.text(max_size=5)


@settings(max_examples=250, deadline=None)
@given(which=st.integers(0, len(RECIPES) - 1), place=st.integers(0, 10**6), value=VALUES)
def test_a_wrong_value_is_refused_by_name_or_trained_with(
    loaded: list[DictConfig], which: int, place: int, value: object
) -> None:
    recipe = loaded[which]
    # The keys that users set twice, as there are more of the others.
    keys = [*keys_of(recipe), *2 * sorted(OWN_KEYS | KINDS.keys())]
    key = keys[place % len(keys)]
    if OmegaConf.select(recipe, key.rpartition(".")[0] or "seed") is None:
        return  # It would add a section.
    with changed(recipe, key, value):
        found = problems(recipe)
        if found:
            # What several keys break together is said of their section.
            parts = key.split(".")
            sections = [".".join(parts[:end]) for end in range(1, len(parts))]
            named = (*(f"{key}{end}" for end in "= .[:"), *(f"{one}:" for one in sections))
            assert any(one.startswith(named) for one in found), found
        else:
            train_with(recipe)


@pytest.mark.parametrize("key", sorted(OWN_KEYS))
def test_another_kind_of_value_is_never_accepted(loaded: list[DictConfig], key: str) -> None:
    recipe = loaded[0]
    known = plain(OmegaConf.select(recipe, key))
    others: tuple[object, ...] = (True, 3, 1.5, "abc!", [{}], {"x": {}})
    for wrong in others:
        same = isinstance(known, type(wrong)) and isinstance(wrong, bool) == isinstance(known, bool)
        if same or known is None or (isinstance(known, float) and type(wrong) is int):
            continue
        if key in SECONDS and isinstance(wrong, float):
            continue
        with changed(recipe, key, wrong):
            assert problems(recipe), (key, wrong)


# ---- what the table says, and what verl says --------------------------------------------------


def test_choices_are_those_of_verl() -> None:
    assert set(get_args(Logger)) == set(Tracking.supported_backend)
    assert set(get_args(LossMode)) == set(core_algos.POLICY_LOSS_REGISTRY)
    assert set(get_args(EnginePrecision)) == set(get_args(ModelDType))
    for name in get_args(Precision):
        assert PrecisionType.to_dtype(name)
    for name in ("half", "float", "float64", "auto"):
        with pytest.raises(RuntimeError):
            PrecisionType.to_dtype(name)


def test_estimates_of_the_divergence_are_those_of_verl() -> None:
    tokens = torch.zeros(1, 2)
    for name in get_args(KlEstimate):
        assert core_algos.kl_penalty(tokens, tokens, name).shape == tokens.shape
    for name in ("full", "k4", "low_var"):
        with pytest.raises(NotImplementedError):
            core_algos.kl_penalty(tokens, tokens, name)


def test_aggregations_of_the_loss_are_those_of_verl(loaded: list[DictConfig]) -> None:
    actor = loaded[0].actor_rollout_ref.actor
    for name in get_args(LossAggregation):
        with changed(loaded[0], "actor_rollout_ref.actor.loss_agg_mode", name):
            assert omega_conf_to_dataclass(actor).loss_agg_mode == name
    source = inspect.getsource(ActorConfig.__post_init__)
    quoted = set(re.findall(r'"((?:token|seq)-[\w-]+)"', source))
    assert quoted == set(get_args(LossAggregation))


def test_fields_read_from_verls_source_are_those_of_its_classes(loaded: list[DictConfig]) -> None:
    package = recipes._verl_package()
    for section in ("actor", "actor.optim", "actor.fsdp_config", "rollout", "rollout.agent"):
        target = OmegaConf.select(loaded[0], f"actor_rollout_ref.{section}")._target_
        module, _, name = target.rpartition(".")
        fields = dataclasses.fields(getattr(importlib.import_module(module), name))
        read = set(declared(target, package)) - {"_mutable_fields"}
        assert read - {"_target_"} == {one.name for one in fields} - {"_target_"}


def test_one_rollout_has_no_group(loaded: list[DictConfig]) -> None:
    """Why rollout.n=1 is refused: verl takes the reward itself for the advantage."""
    rewards, mask = torch.tensor([[0.0, 1.0]]), torch.ones(1, 2)
    advantages, _ = core_algos.compute_grpo_outcome_advantage(rewards, mask, np.array(["a"]))
    assert advantages.tolist() == [[pytest.approx(1.0)] * 2]
    with changed(loaded[0], "actor_rollout_ref.rollout.n", 1):
        assert any("rollout.n=1" in one for one in problems(loaded[0]))

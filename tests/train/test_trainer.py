"""A round's hooks with verl's own estimator and TransferQueue replaced: arithmetic alone."""

import functools
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import torch
import transfer_queue as tq
from labelled import rollout
from omegaconf import OmegaConf
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from typed import settings_with
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.trainer.ppo.v1 import PPOTrainerSync
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from seal.client.client import EnvironmentClient
from seal.coevolution.interface import INITIAL
from seal.coevolution.utilities import UtilityConfig
from seal.coevolution.weights import UTILITIES, WeightConfig
from seal.labels import Label
from seal.records.checkpoint_folder import NOTE
from seal.records.json_lines import LineReader
from seal.records.loop_log import ROLLOUTS, LoopLog
from seal.settings.sections import Seal
from seal.train import interface_update, state
from seal.train.advantages import PER_DIALOGUE
from seal.train.checkpoints import CheckpointKeeper
from seal.train.errors import TrainingError
from seal.train.round import RoundLog
from seal.train.state import LoopConfig, LoopState, loop_config
from seal.train.trainer import SealTrainer

EOS = 0


class Row(NamedTuple):
    """A rollout of the batch: its key, the advantage of each token, its reward and first label."""

    key: str
    advantages: list[float]
    reward: float
    label: Label


ROWS = (
    Row("a_0_0", [0.5, 0.5], 1.0, Label.PASS),
    Row("a_1_0", [-0.5, -0.5, -0.5], 0.0, Label.MISSING_TOOL_CALL),
    Row("b_0_0", [0.25], 0.0, Label.INVALID_TOOL_CALL),
)


def extra_fields(reward: float, label: Label) -> dict[str, Any]:
    spans = ((0, 0, 1), (1, 1, 2))
    return {"seal": rollout([label, Label.PASS], reward, turn_spans=spans).to_json()}


def trainer(
    folder: Path, weights: WeightConfig | None = None, aggregation: str = PER_DIALOGUE
) -> SealTrainer:
    made = SealTrainer.__new__(SealTrainer)
    made.global_steps = 7
    rollout = {"calculate_log_probs": True}
    made.config = OmegaConf.create({"seed": 1, "actor_rollout_ref": {"rollout": rollout}})
    made._loop = LoopConfig(weights or WeightConfig(), UtilityConfig(), window_rounds=2)
    made._state = LoopState()
    made._interface = INITIAL
    made._log = LoopLog(folder)
    made._aggregation = aggregation
    made._round_log = RoundLog(made._log, made._loop.weights, aggregation)
    return made


class Queue:
    """TransferQueue as far as the hook and verl's padding use it: rows by key, with their tags."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = {
            row.key: {
                "advantages": torch.tensor(row.advantages),
                "response_mask": torch.ones(len(row.advantages)),
                "rollout_log_probs": torch.full((len(row.advantages),), -row.reward - 1.0),
                "extra_fields": extra_fields(row.reward, row.label),
            }
            for row in rows
        }
        self.tags: dict[str, dict[str, Any]] = {row.key: {} for row in rows}

    def get(
        self, keys: list[str], partition_id: str, select_fields: list[str] | None = None
    ) -> TensorDict:
        names = select_fields or list(self.rows[keys[0]])
        return list_of_dict_to_tensordict(
            [{name: self.rows[key][name] for name in names} for key in keys]
        )

    def put(
        self,
        keys: list[str],
        partition_id: str,
        fields: TensorDict,
        tags: list[dict[str, Any]] | None = None,
    ) -> KVBatchMeta:
        for number, key in enumerate(keys):
            one = fields[number]
            self.rows.setdefault(key, {}).update({name: one[name] for name in one.keys()})
        self.tags |= dict(zip(keys, tags or [], strict=False))
        return self.batch(keys)

    def batch(self, keys: Sequence[str]) -> KVBatchMeta:
        return KVBatchMeta(
            partition_id="train", keys=list(keys), tags=[self.tags[key] for key in keys]
        )


def advantages_after(
    made: SealTrainer,
    monkeypatch: pytest.MonkeyPatch,
    metrics: dict[str, Any] | None = None,
    multiple_of: int = 1,
) -> dict[str, list[float]]:
    """The advantages of ROWS once a step has run on a batch that verl has padded."""
    queue = Queue(ROWS)
    monkeypatch.setattr(tq, "kv_batch_get", queue.get)
    monkeypatch.setattr(tq, "kv_batch_put", queue.put)
    monkeypatch.setattr(PPOTrainerSync, "_compute_advantage", lambda self, batch, metrics: batch)
    batch = upsample_batch_to_divisible_size(
        queue.batch([row.key for row in ROWS]), multiple_of, EOS
    )
    padding = [key for key in batch.keys if queue.tags[key].get("is_padding")]
    assert len(batch) % multiple_of == 0 and len(padding) == len(batch) - len(ROWS)
    # What the trainer says of padding: no loss has a token of it.
    assert not any(queue.rows[key]["response_mask"].any() for key in padding)
    # Balancing a batch puts padding anywhere.
    batch.reorder(list(reversed(range(len(batch)))))

    def step(self: SealTrainer, metrics: dict[str, Any], timing_raw: dict[str, Any]) -> KVBatchMeta:
        before = self._state
        weighted = self._compute_advantage(batch, metrics)
        # The weights of a round are those of the rounds before.
        assert self._state is before
        return weighted

    monkeypatch.setattr(PPOTrainerSync, "step", step)
    assert made.step({} if metrics is None else metrics, {}).keys == batch.keys
    return {row.key: queue.rows[row.key]["advantages"].tolist() for row in ROWS}


def test_every_token_of_a_trajectory_is_multiplied_by_its_weight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trainer(tmp_path)
    metrics: dict[str, Any] = {}
    # rho: pass 1.0, missing_tool_call 1.5, invalid_tool_call 2.0; the second turn passes
    assert advantages_after(made, monkeypatch, metrics, multiple_of=4) == {
        "a_0_0": [0.5, 0.5],
        "a_1_0": [-0.625, -0.625, -0.625],
        "b_0_0": [0.375],
    }
    # Padding is counted nowhere.
    assert metrics["seal/weight/mean"] == 1.25
    assert metrics["seal/pass_rate"] == pytest.approx(1 / 3)
    assert metrics["seal/mixed_group_share"] == 0.5
    # Six tokens: 1.0 - 1.5 + 0.25 before, 1.0 - 1.875 + 0.375 after.
    assert metrics["seal/advantage/token_mean_before"] == pytest.approx(-0.25 / 6)
    assert metrics["seal/advantage/token_mean_after"] == pytest.approx(-0.5 / 6)
    # In the loss each dialogue has its mean over its tokens: 0.5 - 0.5 + 0.25, 0.5 - 0.625 + 0.375.
    assert metrics["seal/advantage/net_before"] == pytest.approx(0.25 / 3)
    assert metrics["seal/advantage/net_after"] == pytest.approx(0.25 / 3)
    # Two tokens at -2 and four at -1.
    assert metrics["seal/entropy"] == pytest.approx(8 / 6)
    assert made._state.step == 7
    turns = {label: seen.turns for label, seen in made._state.profile.by_label.items()}
    assert turns == {Label.PASS: 4, Label.MISSING_TOOL_CALL: 1, Label.INVALID_TOOL_CALL: 1}
    logged = list(LineReader(tmp_path / ROLLOUTS).new())
    assert [(line["step"], line["uid"], line["weights"]) for line in logged] == [
        (7, "b_0_0", [1.5, 1.5]),
        (7, "a_1_0", [1.25, 1.25]),
        (7, "a_0_0", [1.0, 1.0]),
    ]
    assert logged[1]["turns"][0]["label"] == "missing_tool_call"


@pytest.mark.parametrize("normalize", ["group", "batch"])
def test_normalised_weights_do_not_count_padding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, normalize: Any
) -> None:
    made = trainer(tmp_path, WeightConfig(normalize=normalize))
    alone = advantages_after(made, monkeypatch)
    metrics: dict[str, Any] = {}
    assert advantages_after(made, monkeypatch, metrics, multiple_of=8) == alone
    assert metrics["seal/weight/mean"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    # Two tokens of 0.5 in the group "a". For a loss over tokens its three others are -1/3, for one
    # over dialogues they are -1/2.
    ("aggregation", "failed", "net"),
    [("token-mean", -1 / 3, 0.375 / 6), (PER_DIALOGUE, -1 / 2, 0.375 / 3)],
)
def test_balanced_weights_push_a_group_down_as_much_as_up(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    aggregation: str,
    failed: float,
    net: float,
) -> None:
    made = trainer(tmp_path, WeightConfig(normalize="balanced"), aggregation)
    metrics: dict[str, Any] = {}
    found = advantages_after(made, monkeypatch, metrics, multiple_of=4)
    assert found["a_0_0"] == [0.5, 0.5]
    assert found["a_1_0"] == pytest.approx([failed] * 3)
    # "b" has one sign alone.
    assert found["b_0_0"] == [0.375]
    assert metrics["seal/advantage/net_after"] == pytest.approx(net)
    logged = {line["uid"]: line["weights"] for line in LineReader(tmp_path / ROLLOUTS).new()}
    assert logged["a_1_0"] == pytest.approx([failed / -0.5] * 2)


def test_the_control_mean_gives_all_the_same_weight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trainer(tmp_path, WeightConfig(assignment="mean"))
    assert advantages_after(made, monkeypatch, multiple_of=4) == {
        "a_0_0": [0.625, 0.625],
        "a_1_0": [-0.625, -0.625, -0.625],
        "b_0_0": [0.3125],
    }


def test_the_control_shuffled_keeps_the_weights_and_moves_them_from_step_to_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, float]] = []
    for step in (1, 1, 2, 3, 4):
        made = trainer(tmp_path / str(len(seen)), WeightConfig(assignment="shuffled"))
        made.global_steps = step
        advantages_after(made, monkeypatch)
        lines = list(LineReader(tmp_path / str(len(seen)) / ROLLOUTS).new())
        seen.append({line["uid"]: line["weights"][0] for line in lines})
    assert all(sorted(one.values()) == [1.0, 1.25, 1.5] for one in seen)
    assert seen[0] == seen[1]
    assert len({tuple(sorted(one.items())) for one in seen}) > 1


def test_in_scope_turn_each_turns_tokens_have_their_own_weight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trainer(tmp_path, WeightConfig(scope="turn"))
    assert advantages_after(made, monkeypatch) == {
        "a_0_0": [0.5, 0.5],
        "a_1_0": [-0.75, -0.5, -0.5],
        "b_0_0": [0.5],
    }


@pytest.mark.parametrize(
    ("applies_to", "second", "third"),
    [("positive", -0.5, 0.375), ("negative", -0.625, 0.25)],
)
def test_advantages_of_one_sign_alone(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    applies_to: Any,
    second: float,
    third: float,
) -> None:
    made = trainer(tmp_path, WeightConfig(applies_to=applies_to))
    after = advantages_after(made, monkeypatch)
    assert (after["a_1_0"][0], after["b_0_0"][0]) == (second, third)


@pytest.mark.parametrize("scope", ["trajectory", "turn"])
def test_switched_off_the_advantages_are_verls_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scope: Any
) -> None:
    made = trainer(tmp_path, WeightConfig(w_min=1.0, w_max=1.0, scope=scope))
    after = advantages_after(made, monkeypatch)
    assert list(after.values()) == [row.advantages for row in ROWS]


def settings(**weights: Any) -> Seal:
    utilities = {label.value: rho for label, rho in UTILITIES.items()}
    dynamic = {"enabled": True, "beta": 0.5, "alpha": 1.0, "n_conf": 8}
    base = {"utilities": utilities, "scope": "turn", "dynamic": dynamic}
    return settings_with(
        {
            "seal.cascade_share": 0.5,
            "seal.weights": {**base, **weights},
            "seal.profile": {"window_rounds": 3, "frozen_after": None},
        }
    ).seal


def test_the_method_is_read_from_a_recipe_old_names_included() -> None:
    utilities = {label.value: rho for label, rho in UTILITIES.items()}
    utilities["empty_turn_model_response"] = utilities.pop("missing_tool_call") + 0.25
    read = loop_config(settings(utilities=utilities))
    assert read.weights.utilities[Label.MISSING_TOOL_CALL] == 1.75
    assert (read.weights.scope, read.weights.cascade_share) == ("turn", 0.5)
    assert read.utilities == UtilityConfig(True, 0.5, 1.0, 8)
    assert read.window_rounds == 3


def resumable(folder: Path, step: int, **resume: Any) -> SealTrainer:
    made = trainer(folder / "loop")
    made.global_steps = step
    keys: dict[str, Any] = {"default_local_dir": str(folder), "resume_mode": "auto"}
    keys |= {"resume_from_path": None, "save_freq": 1, "test_freq": 1, **resume}
    kept = {"seal.checkpoints": {"keep_best": True, "keep_last": 1}}
    changes = {**{f"trainer.{key}": value for key, value in keys.items()}, **kept}
    made._checkpoints = CheckpointKeeper(settings_with(changes))
    return made


def test_the_loop_state_is_saved_before_verl_calls_the_checkpoint_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def saved(self: SealTrainer) -> None:
        seen.append((tmp_path / "global_step_7" / state.FILE).exists())
        (tmp_path / "global_step_7/data.pt").touch()
        (tmp_path / NOTE).write_text("7")

    monkeypatch.setattr(PPOTrainerSync, "_save_checkpoint", saved)
    made = resumable(tmp_path, 7)
    advantages_after(made, monkeypatch)
    made._save_checkpoint()
    assert seen == [True]
    # verl saves before on_step_end, and the round's labels are in the checkpoint.
    assert state.load(tmp_path / "global_step_7").profile.by_label[Label.PASS].turns == 4

    def loaded(self: SealTrainer) -> None:
        self.global_steps = 7

    monkeypatch.setattr(PPOTrainerSync, "_load_checkpoint", loaded)
    again = resumable(tmp_path, 0)
    again._load_checkpoint()
    assert again._state == made._state
    named = tmp_path / "global_step_7"
    named.rename(tmp_path / "kept")
    explicit = resumable(
        tmp_path, 0, resume_mode="resume_path", resume_from_path=str(tmp_path / "kept")
    )
    explicit._load_checkpoint()
    assert explicit._state == made._state
    with pytest.raises(TrainingError, match="resume_from_path"):
        resumable(tmp_path, 0)._load_checkpoint()


# ---- the back edge ----------------------------------------------------------------------------


def replied(hashed: str) -> SealTrainer:
    """A trainer whose service answers the profile with marks in tool docs and this hash."""
    made = trainer(Path())
    shown = replace(INITIAL, version=7, schema_cues=True)
    reply = asdict(replace(shown.to_reply(), content_hash=hashed or shown.content_hash()))

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"success": True, "data": reply})

    transport = httpx.MockTransport(answer)
    client = functools.partial(EnvironmentClient, transport=transport)
    made._settings = settings_with({})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(interface_update, "EnvironmentClient", client)
        made._send_profile()
    return made


def test_a_service_with_other_texts_than_the_trainer_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert replied("")._interface.schema_cues
    with pytest.raises(TrainingError, match="from the same commit"):
        replied("0123456789ab")

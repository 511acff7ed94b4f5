"""The advantage hook with verl's own estimator and TransferQueue replaced: arithmetic alone."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from tensordict import NonTensorStack, TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1 import PPOTrainerSync

from seal.coevolution.labels import Label
from seal.coevolution.weights import WeightConfig
from seal.loop_log import ROLLOUTS, LineReader, LoopLog
from seal.train.round import RolloutRecord
from seal.train.trainer import SealTrainer, StartGateError, weight_config
from seal.wire import TurnDiagnosis

KEYS = ["a_0_0", "a_1_0", "b_0_0"]
# Rewards and one label a rollout; the last row is padding.
ROWS = ((1.0, Label.PASS), (0.0, Label.MISSING_TOOL_CALL), (0.0, Label.INVALID_TOOL_CALL))
ADVANTAGES = ([0.5, 0.5], [-0.5, -0.5, -0.5], [0.25])


def extra_fields(reward: float, label: Label) -> dict[str, Any]:
    turn = TurnDiagnosis(0, label.value, "why", None)
    return {"seal": RolloutRecord("t", "multi_turn_base", reward, (turn,), 2, False, 0.1).to_json()}


def trainer(folder: Path) -> SealTrainer:
    made = SealTrainer.__new__(SealTrainer)
    made.global_steps = 7
    made._weights = WeightConfig()
    made._window, made._window_rounds = [], 2
    made._loop_log = LoopLog(folder)
    return made


def test_every_token_of_a_trajectory_is_multiplied_by_its_weight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: dict[str, torch.Tensor] = {}

    def get(**_: Any) -> TensorDict:
        nested = torch.nested.as_nested_tensor(
            [torch.tensor(row) for row in ADVANTAGES], layout=torch.jagged
        )
        fields = TensorDict({"advantages": nested}, batch_size=3)
        fields["extra_fields"] = NonTensorStack(*(extra_fields(*row) for row in ROWS))
        return fields

    def put(keys: list[str], partition_id: str, fields: TensorDict) -> KVBatchMeta:
        stored.update(zip(keys, fields["advantages"].unbind(), strict=True))
        return KVBatchMeta(
            partition_id=partition_id, keys=keys, tags=[{}, {}, {"is_padding": True}]
        )

    monkeypatch.setattr(tq, "kv_batch_get", get)
    monkeypatch.setattr(tq, "kv_batch_put", put)
    monkeypatch.setattr(PPOTrainerSync, "_compute_advantage", lambda self, batch, metrics: batch)
    made = trainer(tmp_path)
    metrics: dict[str, Any] = {}
    batch = KVBatchMeta(partition_id="train", keys=KEYS, tags=[{}, {}, {}])
    made._compute_advantage(batch, metrics)

    # rho: pass 1.0, missing_tool_call 1.5, invalid_tool_call 2.0
    assert stored["a_0_0"].tolist() == [0.5, 0.5]
    assert stored["a_1_0"].tolist() == [-0.75, -0.75, -0.75]
    assert stored["b_0_0"].tolist() == [0.5]
    # Padding is trained with and counted nowhere.
    assert metrics["seal/weight/mean"] == 1.25
    assert metrics["seal/pass_rate"] == 0.5
    assert metrics["seal/mixed_group_share"] == 1.0
    assert made._window[0].by_label.keys() == {Label.PASS, Label.MISSING_TOOL_CALL}
    logged = list(LineReader(tmp_path / ROLLOUTS).new())
    assert [(line["step"], line["weight"]) for line in logged] == [(7, 1.0), (7, 1.5)]
    assert logged[1]["turns"][0]["label"] == "missing_tool_call"


def test_weights_are_read_from_a_recipe_old_names_included() -> None:
    utilities = {label.value: 1.0 for label in WeightConfig().utilities}
    utilities["empty_turn_model_response"] = utilities.pop("missing_tool_call") + 0.5
    settings = OmegaConf.create({"utilities": utilities, "w_min": 0.5, "w_max": 2.0})
    assert weight_config(settings).utilities[Label.MISSING_TOOL_CALL] == 1.5


@pytest.mark.parametrize(
    ("pass_rate", "mixed", "words"),
    [(0.1, 0.9, "pass_rate 0.10"), (0.9, 0.1, "mixed_group_share 0.10"), (0.9, 0.9, "")],
)
def test_the_start_gate(tmp_path: Path, pass_rate: float, mixed: float, words: str) -> None:
    made = trainer(tmp_path)
    gate = {"suite": "fixed", "min_pass_rate": 0.2, "min_mixed_group_share": 0.6}
    made.config = OmegaConf.create({"seal": {"start_gate": gate}})
    metrics = {"val-seal/fixed/pass_rate": pass_rate, "val-seal/fixed/mixed_group_share": mixed}
    if words:
        with pytest.raises(StartGateError, match=words):
            made._check_start_gate(metrics)
    else:
        made._check_start_gate(metrics)


def test_a_start_gate_on_no_suite_is_said(tmp_path: Path) -> None:
    made = trainer(tmp_path)
    gate = {"suite": "fixd", "min_pass_rate": 0.2, "min_mixed_group_share": 0.6}
    made.config = OmegaConf.create({"seal": {"start_gate": gate}})
    with pytest.raises(StartGateError, match="'fixd' is no suite"):
        made._check_start_gate({})

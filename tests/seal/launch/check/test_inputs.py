from dataclasses import replace
from pathlib import Path

import pytest
from check_material import CLUSTER, MACHINE, QWEN_7B, said
from omegaconf import DictConfig

from seal.launch import folders
from seal.launch.check import inputs
from seal.launch.check.finding import Level
from seal.launch.check.model import Model
from seal.settings.reading import SettingsError, shown
from seal.settings.sections import read_settings


def test_a_model_that_is_whole(seal: DictConfig) -> None:
    text = said(inputs.model_folder(seal, MACHINE, QWEN_7B), Level.OK)
    assert text == "models/qwen2.5-7b: qwen2, 7,616 million"


def test_a_model_that_lacks_something(seal: DictConfig) -> None:
    broken = replace(QWEN_7B, lacks=("there is no tokenizer", "2 of 4 files are missing"))
    text = said(inputs.model_folder(seal, MACHINE, broken), Level.ERROR)
    assert "there is no tokenizer; 2 of 4 files are missing (fetch it again)" in text
    made = replace(broken, made_by=("scripts/make_tiny_policy.py",))
    assert "delete the folder" in said(inputs.model_folder(seal, MACHINE, made), Level.ERROR)
    plain = replace(QWEN_7B, lacks_generation_config=True)
    assert "stop_tokens" in said(inputs.model_folder(seal, MACHINE, plain), Level.WARNING)


def test_a_model_that_is_not_there(
    quick: DictConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "ROOT", tmp_path)
    text = said(inputs.model_folder(quick, MACHINE, Model.read(quick)), Level.OK)
    assert "data/tiny_policy does not exist; the run makes it: scripts/make_tiny" in text
    for path in ("models/smollm2-135m", "data/other", "experiments/other", "/nowhere/at/all"):
        nowhere = said(inputs.model_folder(quick, MACHINE, Model(path, None)), Level.ERROR)
        assert f"{path} does not exist" in nowhere and "docs/backbones.md" in nowhere
    hub = Model("Qwen/Qwen2.5-7B-Instruct", None)
    assert "hf download Qwen/Qwen2.5" in said(
        inputs.model_folder(quick, MACHINE, hub), Level.WARNING
    )


def test_data_files_that_are_missing(
    quick: DictConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said(inputs.data(quick, MACHINE, QWEN_7B), Level.OK)
    monkeypatch.setattr(folders, "ROOT", tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.parquet").touch()
    quick.data.train_files = ["data/a.parquet", "data/b.parquet"]
    train, evaluation = inputs.data(quick, MACHINE, QWEN_7B)
    assert "data.train_files: " in said([train], Level.ERROR) and "data/b.parquet" in train.message
    assert "data.val_files: " in evaluation.message and "prepare_bfcl.py" in evaluation.message


def test_a_data_file_that_cannot_be_read(
    seal: DictConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.parquet").touch()
    seal.data.train_files = seal.data.val_files = str(tmp_path / "a.parquet")
    assert "cannot be read" in said(inputs.data(seal, MACHINE, QWEN_7B), Level.ERROR)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1.2.3", "[::1]"])
def test_a_nodes_own_address_with_several_nodes(seal: DictConfig, host: str) -> None:
    seal.env_service.env_url = ["http://10.0.0.1:8082", f"http://{host}:8082"]
    said(inputs.addresses(seal, CLUSTER, QWEN_7B), Level.OK)
    seal.trainer.nnodes = 2
    text = said(inputs.addresses(seal, CLUSTER, QWEN_7B), Level.ERROR)
    assert f"env_service.env_url=http://{host}:8082" in text and "trainer.nnodes" in text
    seal.env_service.env_url = "http://10.0.0.1:8082"
    said(inputs.addresses(seal, CLUSTER, QWEN_7B), Level.OK)


def test_an_address_that_is_none(seal: DictConfig) -> None:
    seal.env_service.env_url = "localhost:8082"
    assert "expected an address like" in said(inputs.addresses(seal, MACHINE, QWEN_7B), Level.ERROR)


def test_a_token_that_is_none_or_reaches_nobody(
    seal: DictConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SEAL_ENV_TOKEN", raising=False)
    assert said(inputs.access_token(seal, MACHINE, QWEN_7B), Level.OK) == "none is given"
    monkeypatch.setenv("SEAL_ENV_TOKEN", "secret")
    assert said(inputs.access_token(seal, MACHINE, QWEN_7B), Level.OK) == "given"
    text = said(inputs.access_token(seal, CLUSTER, QWEN_7B), Level.ERROR)
    assert "does not reach the nodes of the Ray cluster 10.0.0.1" in text and "secret" not in text
    seal.env_service.token_file = str(tmp_path / "token")
    assert "cannot read" in said(inputs.access_token(seal, CLUSTER, QWEN_7B), Level.ERROR)
    (tmp_path / "token").write_text("secret")
    said(inputs.access_token(seal, CLUSTER, QWEN_7B), Level.OK)


def test_a_number_of_dialogues(quick: DictConfig) -> None:
    for number in (None, 1, 48):
        quick.env_service.max_dialogues = number
        said(inputs.dialogues(quick, MACHINE, QWEN_7B), Level.OK)
    for wrong in (0, -1, 1.5, "many", True):
        quick.env_service.max_dialogues = wrong
        with pytest.raises(SettingsError) as refused:  # before the checks: load_recipe asks
            read_settings(quick)
        text = str(refused.value)
        assert text.startswith(f"env_service.max_dialogues={shown(wrong)}: expected a whole number")

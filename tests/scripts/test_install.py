"""install.sh with a stand-in for Python: which flash-attn it takes, and what its summary says."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Answers what install.sh asks Python. "pip install" notes its arguments, makes dist-info folders.
PYTHON = r"""#!/usr/bin/env bash
bin=$(dirname "$(readlink -f "$0")")
site=$bin/../site
case "$*" in
    --version) echo Python 3.11.0 ;;
    '-m venv '*) mkdir -p "$3/bin" "$3/site" && cp "$0" "$3/bin/python" ;;
    *'import sysconfig'*) echo "$site" ;;
    *torch.version.cuda*) echo "$FAKE_CUDA" ;;
    *' install '*)
        echo "$*" >>"$FAKE_LOG"
        case "$*" in
            *trainer-*) mkdir -p "$site/torch-2.11.0.dist-info" "$site/vllm-0.24.0.dist-info" ;;
            *flash*attn*)
                [ "$FAKE_FLASH" != none ] || { echo 'ERROR: no nvcc'; exit 1; }
                mkdir -p "$site/flash_attn-2.8.3.dist-info" ;;
        esac ;;
    *' uninstall '*) rm -r "$site/flash_attn-2.8.3.dist-info" ;;
    *'import flash_attn'*) [ "$FAKE_FLASH" != broken ] || { echo 'undefined symbol'; exit 1; } ;;
esac
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "install.sh", tmp_path)
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    (tmp_path / "fake_python").write_text(PYTHON)
    (tmp_path / "fake_python").chmod(0o755)
    return tmp_path


def install(
    project: Path, *argv: str, cuda: str = "13.0", flash: str = "works", wheel: Path | None = None
) -> tuple[str, list[str]]:
    """Its output, and the arguments of every pip install."""
    log = project / "pip.log"
    log.write_text("")
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHON": str(project / "fake_python"),
        "FAKE_LOG": str(log),
        "FAKE_CUDA": cuda,
        "FAKE_FLASH": flash,
        **({"FLASH_ATTN_WHEEL": str(wheel)} if wheel else {}),
    }
    command = ["bash", str(project / "install.sh"), *argv]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, [line for line in log.read_text().splitlines() if "flash" in line]


@pytest.mark.parametrize(("cuda", "release"), [("13.0", "2.8.3.post2"), ("12.9", "2.8.3")])
def test_the_release_fits_cuda(project: Path, cuda: str, release: str) -> None:
    said, (asked,) = install(project, "--cuda", cuda=cuda)
    assert asked.endswith(f" flash-attn=={release}")
    assert f"flash-attn=={release} for CUDA {cuda}" in said
    assert "flash-attn           2.8.3" in said and "cuda: torch 2.11.0, vllm 0.24.0" in said
    # What is there is not asked for again.
    assert install(project, "--cuda", cuda=cuda)[1] == []


@pytest.mark.parametrize("flash", ["none", "broken"])
def test_without_it_the_end_says_what_that_costs(project: Path, flash: str) -> None:
    said, _ = install(project, "--cuda", flash=flash)
    summary = said.split("what is installed, and what is not")[1]
    assert "flash-attn           NOT INSTALLED: torch's own attention (sdpa)" in summary
    assert "install: done" in summary
    assert ("cannot be imported (undefined symbol); removing it" in said) == (flash == "broken")


def test_a_wheel_at_hand_is_taken_at_any_time(project: Path) -> None:
    wheel = project / "flash_attn-2.8.3+cu13-cp311-linux_x86_64.whl"
    wheel.touch()
    install(project, "--cuda", flash="none")
    said, asked = install(project, "--cuda", wheel=wheel)
    assert len(asked) == 1 and asked[0].endswith(str(wheel))
    assert ".venv is up to date" in said and "flash-attn           2.8.3" in said
    # In a first run nothing else is tried.
    shutil.rmtree(project / ".venv")
    assert len(install(project, "--cuda", wheel=wheel)[1]) == 1


def test_a_wheel_that_is_not_there(project: Path) -> None:
    done = subprocess.run(
        ["bash", str(project / "install.sh"), "--cuda"],
        env={"PATH": "/usr/bin:/bin", "FLASH_ATTN_WHEEL": "nowhere.whl"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and "nowhere.whl is not a file" in done.stderr


def test_a_processor_needs_no_flash_attn(project: Path) -> None:
    said, asked = install(project, "--cpu")
    assert asked == [] and "not used: these packages are for the processor" in said

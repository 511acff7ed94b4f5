"""Who may import whom (docs/architecture.md): packages, and what each may name."""

import sys
from dataclasses import dataclass
from pathlib import Path

from architecture_picture import METHOD as DRAWN_METHOD
from architecture_picture import PACKAGES as DRAWN
from architecture_picture import PICTURE, imports, picture, shown

ROOT = Path(__file__).resolve().parents[1]

EVERY_PACKAGE = ("seal.ROOT",)
METHOD = ("seal.labels", "seal.wire", "seal.formats", "seal.coevolution", "seal.records")
SETTINGS_STACK = ("omegaconf", "pydantic", "pydantic_core")
SERVICE_STACK = ("fastapi", "pydantic", "prometheus_client", "starlette", "uvicorn")


@dataclass(frozen=True)
class Package:
    """Files, and what they may import besides the standard library."""

    files: tuple[str, ...]
    may: tuple[str, ...]


PACKAGES = (
    # jsonschema: what a tool's schema allows is a standard, so a library decides it on both sides.
    Package(
        (
            *("seal/__init__.py", "seal/labels.py", "seal/wire.py", "seal/formats"),
            *("seal/coevolution", "seal/records"),
        ),
        (*METHOD, "jsonschema"),
    ),
    Package(
        ("seal/client",),
        (*METHOD, "seal.client", "httpx", "httpx_aiohttp", "tenacity"),
    ),
    # What a run writes and every reader needs is pure; the rest reads, prints and draws files.
    Package(
        tuple(f"seal/validation/{name}.py" for name in ("log", "metrics", "statistics", "summary")),
        (*METHOD, "seal.validation"),
    ),
    Package(
        ("seal/validation",),
        (*METHOD, "seal.validation", "matplotlib", "pyarrow", "rich"),
    ),
    # A recipe's values, for launcher and trainer alike: neither of their libraries is here.
    Package(
        ("seal/settings",),
        (*METHOD, "seal.client.addresses", "seal.settings", *SETTINGS_STACK),
    ),
    # A process of its own: neither the launcher nor its checks wait for torch.
    Package(("seal/launch/check/all_reduce.py",), ("torch",)),
    # Checked before a run starts, so it knows nothing of the run itself (seal.launch.run).
    Package(
        ("seal/launch/check",),
        (
            *(
                "seal.client.access_token",
                "seal.records.checkpoint_folder",
                "seal.client.client",
                "seal.launch.check",
            ),
            *("seal.launch.data_files", "seal.launch.folders", "seal.launch.gpus"),
            *("seal.launch.memory", "seal.launch.pools", "seal.launch.processes"),
            "seal.launch.resume",
            *("seal.launch.service", "seal.launch.shapes", "seal.launch.training"),
            "seal.settings",
            *("httpx", "huggingface_hub", "omegaconf", "rich"),
        ),
    ),
    Package(
        ("seal/launch", "launcher.py"),
        (
            *(*METHOD, "seal.client", "seal.launch", "seal.settings", "seal.tasks"),
            "seal.validation",
            *("dotenv", "filelock", "httpx", "hydra", "omegaconf", "psutil", "pyarrow", "rich"),
            *("pydantic", "yaml"),
        ),
    ),
    Package(
        ("seal/logview",),
        (
            *(*METHOD, "seal.client.listening", "seal.logview", "seal.validation"),
            *("fastapi", "jinja2", "pydantic", "starlette", "uvicorn"),
        ),
    ),
    Package(
        ("seal/evaluation",),
        (
            *METHOD,
            "seal.client",
            "seal.evaluation",
            "seal.launch",
            "seal.validation",
            *("filelock", "httpx", "omegaconf", "openai", "pyarrow", "rich", "tenacity"),
        ),
    ),
    # It asks a model as an evaluation does, and takes that from there.
    Package(
        ("seal/exploration",),
        (
            *(*METHOD, "seal.client", "seal.exploration", "seal.launch"),
            *("seal.evaluation.endpoint", "seal.evaluation.faults", "seal.evaluation.programs"),
            *("omegaconf", "openai"),
        ),
    ),
    Package(
        ("seal/study",),
        (
            *METHOD,
            *("seal.launch", "seal.study", "seal.validation"),
            *("matplotlib", "numpy", "omegaconf", "pyarrow", "rich", "scipy", "yaml"),
        ),
    ),
    Package(
        ("seal/backbone",),
        (
            *(*METHOD, "seal.backbone", "seal.client", "seal.settings", "seal.tasks"),
            *("jinja2", "omegaconf", "pyarrow", "transformers", "verl"),
        ),
    ),
    Package(("seal/export",), ("accelerate", "seal.export", "torch", "transformers", "verl")),
    Package(
        ("seal/train",),
        (
            *(*METHOD, "seal.backbone", "seal.client", "seal.settings", "seal.tasks", "seal.train"),
            "seal.validation",
            *("datasets", "numpy", "omegaconf", "ray", "tensordict", "torch", "transfer_queue"),
            *("verl", "vllm"),
        ),
    ),
    Package(("seal/tasks",), ("seal.labels", "seal.records", "seal.tasks", "seal.wire", "pandas")),
    Package(
        ("seal/warm_up",),
        (
            *("seal.launch.listening", "seal.launch.processor", "seal.launch.recipe"),
            *("seal.backbone", "seal.records", "seal.tasks", "seal.warm_up"),
            *("matplotlib", "numpy", "safetensors", "tokenizers", "torch", "tqdm", "transformers"),
        ),
    ),
    # The whole method in one process, with the toy environment and no trainer.
    Package(
        ("examples",),
        (
            *("env_service.environments.base", "env_service.environments.toy"),
            *("seal.coevolution", "seal.labels", "seal.formats", "seal.wire", "numpy"),
        ),
    ),
    Package(
        ("env_service/environments/bfcl",),
        (*METHOD, "env_service", *SERVICE_STACK, "bfcl_eval", "tqdm"),
    ),
    Package(
        ("env_service",),
        (
            *METHOD,
            "seal.client.access_token",
            "seal.client.listening",
            "env_service",
            *SERVICE_STACK,
        ),
    ),
)


def within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def violations(root: Path) -> list[str]:
    """File and import of everything that breaks a rule; every file belongs to its first package."""
    found, seen = [], set()
    for package in PACKAGES:
        for entry in package.files:
            path = root / entry
            for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
                if file in seen or not file.exists():
                    continue
                seen.add(file)
                for name in imports(file):
                    standard = name.split(".")[0] in sys.stdlib_module_names
                    if not standard and not within(name, (*EVERY_PACKAGE, *package.may)):
                        found.append(f"{file.relative_to(root)} imports {name}")
    return found


def test_every_import_stays_within_its_package() -> None:
    assert violations(ROOT) == []


def test_every_file_belongs_to_a_package() -> None:
    entries = tuple(entry for package in PACKAGES for entry in package.files)
    for folder in ("seal", "env_service"):
        for file in (ROOT / folder).rglob("*.py"):
            name = file.relative_to(ROOT).as_posix()
            if file.name != "__init__.py":
                assert any(name == e or name.startswith(e + "/") for e in entries), name


def test_a_violation_is_found(tmp_path: Path) -> None:
    planted = {
        "seal/coevolution/weights.py": "from seal import ROOT\nimport torch\n",
        "seal/client/client.py": "import httpx\nfrom seal import train\n",
        "env_service/app.py": "def f():\n    import bfcl_eval.utils\n",
        "env_service/environments/bfcl/tasks.py": "import bfcl_eval, seal.client.client\n",
        "seal/launch/check/host.py": "from seal.launch import folders, run\n",
        "examples/seal_loop.py": "import numpy, torch\n",
        "launcher.py": "import seal.train.main\n",
    }
    for name, text in planted.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert sorted(violations(tmp_path)) == [
        "env_service/app.py imports bfcl_eval.utils",
        "env_service/environments/bfcl/tasks.py imports seal.client.client",
        "examples/seal_loop.py imports torch",
        "launcher.py imports seal.train.main",
        "seal/client/client.py imports seal.train",
        "seal/coevolution/weights.py imports torch",
        "seal/launch/check/host.py imports seal.launch.run",
    ]


def test_the_picture_of_the_packages_is_drawn_from_the_imports() -> None:
    assert PICTURE.read_text("utf-8") == picture(), "run tests/architecture_picture.py"


def test_every_arrow_of_the_picture_points_down_or_to_the_right() -> None:
    for source, target in shown():
        start, end = DRAWN[source], DRAWN[target]
        beside = source in DRAWN_METHOD
        assert end.x > start.x if beside else end.y > start.y, f"{source} imports {target}"

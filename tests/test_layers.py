"""Who may import whom (docs/house.md): rooms, and what each may name."""

import sys
from dataclasses import dataclass
from pathlib import Path

from house_picture import METHOD as DRAWN_METHOD
from house_picture import PICTURE, imports, picture, shown
from house_picture import ROOMS as DRAWN

ROOT = Path(__file__).resolve().parents[1]

EVERY_ROOM = ("seal.ROOT",)
METHOD = ("seal.wire", "seal.formats", "seal.coevolution", "seal.records")
SETTINGS_STACK = ("omegaconf", "pydantic", "pydantic_core")
SERVICE_STACK = ("fastapi", "pydantic", "prometheus_client", "starlette", "uvicorn")
TRAINER_STACK = (
    *("numpy", "torch", "ray", "verl", "vllm", "transfer_queue", "tensordict"),
    *("accelerate", "jinja2", "omegaconf", "pyarrow", "transformers"),
)


@dataclass(frozen=True)
class Room:
    """Files, and what they may import besides the standard library."""

    files: tuple[str, ...]
    may: tuple[str, ...]


ROOMS = (
    # jsonschema: what a tool's schema allows is a standard, so a library decides it on both sides.
    Room(
        ("seal/__init__.py", "seal/wire.py", "seal/formats", "seal/coevolution", "seal/records"),
        (*METHOD, "jsonschema"),
    ),
    Room(
        ("seal/environment",),
        (*METHOD, "seal.environment", "httpx", "httpx_aiohttp", "tenacity"),
    ),
    # A recipe's values, for launcher and trainer alike: neither of their libraries is here.
    Room(
        ("seal/settings",),
        (*METHOD, "seal.environment.addresses", "seal.settings", *SETTINGS_STACK),
    ),
    # Checked before a run starts, so it knows nothing of the run itself (seal.launch.run).
    Room(
        ("seal/launch/check",),
        (
            *(
                "seal.environment.access_token",
                "seal.records.checkpoint_folder",
                "seal.environment.client",
                "seal.launch.check",
            ),
            *("seal.launch.data_files", "seal.launch.folders", "seal.launch.gpus"),
            *("seal.launch.memory", "seal.launch.processes", "seal.launch.resume"),
            *("seal.launch.service", "seal.launch.shapes", "seal.launch.training"),
            "seal.settings",
            *("httpx", "huggingface_hub", "omegaconf", "rich"),
        ),
    ),
    Room(
        ("seal/launch", "launcher.py"),
        (
            *(*METHOD, "seal.environment", "seal.launch", "seal.settings"),
            *("dotenv", "filelock", "httpx", "hydra", "omegaconf", "psutil", "pyarrow", "rich"),
            *("pydantic", "yaml"),
        ),
    ),
    Room(
        ("seal/logview",),
        (*METHOD, "seal.logview", "fastapi", "jinja2", "pydantic", "starlette", "uvicorn"),
    ),
    Room(
        ("seal/evaluation",),
        (
            *METHOD,
            "seal.environment",
            "seal.evaluation",
            "seal.launch",
            *("filelock", "httpx", "omegaconf", "openai", "pyarrow", "rich", "tenacity"),
        ),
    ),
    Room(
        ("seal/study",),
        (
            *METHOD,
            "seal.evaluation",
            "seal.launch",
            "seal.study",
            *("matplotlib", "numpy", "omegaconf", "pyarrow", "rich", "scipy", "yaml"),
        ),
    ),
    Room(
        ("seal/train",),
        (*METHOD, "seal.environment", "seal.settings", "seal.train", *TRAINER_STACK),
    ),
    Room(("seal/tasks",), ("seal.records", "seal.tasks", "pandas")),
    Room(
        ("seal/warm_up",),
        (
            *("seal.launch.listening", "seal.launch.processor", "seal.launch.recipe"),
            *("seal.records", "seal.train", "seal.warm_up"),
            *("matplotlib", "numpy", "safetensors", "tokenizers", "torch", "tqdm", "transformers"),
        ),
    ),
    Room(
        ("env_service/environments/bfcl",),
        (*METHOD, "env_service", *SERVICE_STACK, "bfcl_eval"),
    ),
    Room(
        ("env_service",), (*METHOD, "seal.environment.access_token", "env_service", *SERVICE_STACK)
    ),
)


def within(name: str, rooms: tuple[str, ...]) -> bool:
    return any(name == room or name.startswith(room + ".") for room in rooms)


def violations(root: Path) -> list[str]:
    """File and import of everything that breaks a rule; every file belongs to its first room."""
    found, seen = [], set()
    for room in ROOMS:
        for entry in room.files:
            path = root / entry
            for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
                if file in seen or not file.exists():
                    continue
                seen.add(file)
                for name in imports(file):
                    standard = name.split(".")[0] in sys.stdlib_module_names
                    if not standard and not within(name, (*EVERY_ROOM, *room.may)):
                        found.append(f"{file.relative_to(root)} imports {name}")
    return found


def test_every_import_stays_within_its_room() -> None:
    assert violations(ROOT) == []


def test_every_file_of_the_packages_has_a_room() -> None:
    entries = tuple(entry for room in ROOMS for entry in room.files)
    for package in ("seal", "env_service"):
        for file in (ROOT / package).rglob("*.py"):
            name = file.relative_to(ROOT).as_posix()
            if file.name != "__init__.py":
                assert any(name == e or name.startswith(e + "/") for e in entries), name


def test_a_violation_is_found(tmp_path: Path) -> None:
    planted = {
        "seal/coevolution/weights.py": "from seal import ROOT\nimport torch\n",
        "seal/environment/client.py": "import httpx\nfrom seal import train\n",
        "env_service/app.py": "def f():\n    import bfcl_eval.utils\n",
        "env_service/environments/bfcl/tasks.py": "import bfcl_eval, seal.environment.client\n",
        "seal/launch/check/host.py": "from seal.launch import folders, run\n",
        "launcher.py": "import seal.train.main\n",
    }
    for name, text in planted.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert sorted(violations(tmp_path)) == [
        "env_service/app.py imports bfcl_eval.utils",
        "env_service/environments/bfcl/tasks.py imports seal.environment.client",
        "launcher.py imports seal.train.main",
        "seal/coevolution/weights.py imports torch",
        "seal/environment/client.py imports seal.train",
        "seal/launch/check/host.py imports seal.launch.run",
    ]


def test_the_picture_of_the_rooms_is_drawn_from_the_imports() -> None:
    assert PICTURE.read_text("utf-8") == picture(), "run tests/house_picture.py"


def test_every_arrow_of_the_picture_points_down_or_to_the_right() -> None:
    for source, target in shown():
        start, end = DRAWN[source], DRAWN[target]
        beside = source in DRAWN_METHOD
        assert end.x > start.x if beside else end.y > start.y, f"{source} imports {target}"

import functools
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from omegaconf import DictConfig

from seal.client import EnvironmentClient
from seal.launch import run
from seal.launch.processes import Family
from seal.launch.recipe import load_recipe
from seal.wire import PROTOCOL_VERSION

EXP = Path(__file__).resolve().parents[3] / "exp"


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DictConfig:
    """The quickstart, in a project folder of its own."""
    monkeypatch.setattr(run, "ROOT", tmp_path)
    return load_recipe(EXP / "quickstart.yaml", ["seal.loop_dir=experiments/quickstart/loop"])


def test_missing_data_files_are_named_with_what_makes_them(recipe: DictConfig) -> None:
    with pytest.raises(run.RunError, match=r"data/quickstart_train\.parquet.*prepare_bfcl\.py"):
        run.check_inputs(recipe)


@pytest.mark.parametrize("name", ["", ".", "../x", "a/b", "a b"])
def test_a_name_that_is_no_folder_is_refused(recipe: DictConfig, name: str) -> None:
    recipe.trainer.experiment_name = name
    with pytest.raises(run.RunError, match="names folders"):
        run.check_inputs(recipe)


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "http://x", "http://x:99999", "http://x:y"])
def test_an_address_that_is_none_is_refused(recipe: DictConfig, url: str) -> None:
    recipe.env_service.env_url = url
    with pytest.raises(run.RunError, match="is no address like"):
        run.check_inputs(recipe)


def test_every_address_of_a_list_is_checked(recipe: DictConfig) -> None:
    recipe.env_service.env_url = ["http://a:1", "b:2"]
    with pytest.raises(run.RunError, match="'b:2' is no address like"):
        run.check_inputs(recipe)
    recipe.env_service.env_url = []
    with pytest.raises(run.RunError, match="has no address like"):
        run.check_inputs(recipe)


def test_a_list_of_addresses_is_checked_for_health_with_the_token(
    recipe: DictConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("secret\n")
    recipe.env_service.env_url = ["http://a:1", "http://b:2"]
    recipe.env_service.token_file = "token"
    asked: list[tuple[str, str]] = []

    def healthy(request: httpx.Request) -> httpx.Response:
        asked.append((str(request.url), request.headers["Authorization"]))
        data = {"protocol_version": PROTOCOL_VERSION, "environments": ["bfcl"]}
        return httpx.Response(200, json={"success": True, "data": data})

    client = functools.partial(EnvironmentClient, transport=httpx.MockTransport(healthy))
    monkeypatch.setattr(run, "EnvironmentClient", client)
    run.check_service(recipe)
    for url in recipe.env_service.env_url:
        assert (f"{url}/healthz", "Bearer secret") in asked


def test_a_token_file_that_is_not_there_is_refused(recipe: DictConfig) -> None:
    recipe.env_service.token_file = "no/token"
    with pytest.raises(run.RunError, match=r"cannot read env_service\.token_file=.*no/token"):
        run.check_inputs(recipe)


def test_one_service_is_not_started_for_several_addresses(recipe: DictConfig) -> None:
    recipe.env_service.env_url = ["http://127.0.0.1:1", "http://127.0.0.1:2"]
    with pytest.raises(run.RunError, match=r"--with-bfcl starts one service.*has 2 addresses"):
        run.start_service(recipe, Family())


@pytest.mark.parametrize("token_file", [None, "token"])
def test_a_started_service_gets_its_address_and_the_token_file(
    recipe: DictConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token_file: str | None
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    recipe.env_service.env_url = [f"http://127.0.0.1:{port}"]
    recipe.env_service.token_file = token_file
    started: list[list[str]] = []

    class Up:
        """A service that was started and needs no time for it."""

        def poll(self) -> None:
            return None

    def start(self: Family, command: list[str], *_: object) -> Up:
        started.append(command)
        return Up()

    monkeypatch.setattr(run, "SERVICE_PYTHON", Path(sys.executable))
    monkeypatch.setattr(run, "check_service", lambda recipe, attempts: None)
    monkeypatch.setattr(Family, "start", start)
    (tmp_path / "launcher_record/quickstart").mkdir(parents=True)
    run.start_service(recipe, Family())
    expected = ["--host", "127.0.0.1", "--port", port, "--env", "bfcl"]
    if token_file is not None:
        expected += ["--token-file", str(tmp_path / "token")]
    assert started == [[sys.executable, "-m", "env_service", *expected]]


def test_two_launches_of_a_name_are_two_runs_to_the_service(recipe: DictConfig) -> None:
    path = run.record_run(recipe, ["seed=2"], "0123456789abcdef")
    assert recipe.seal.run_id == "quickstart-01234567"
    assert "run_id: quickstart-01234567" in path.read_text()


def test_a_nearly_full_disk_is_refused(
    recipe: DictConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    for name in ("train", "eval"):
        (tmp_path / f"data/quickstart_{name}.parquet").touch()
    run.check_inputs(recipe)
    monkeypatch.setattr(run, "FREE_DISK_BYTES", 2**62)
    with pytest.raises(run.RunError, match="GiB free"):
        run.check_inputs(recipe)


def test_a_model_path_that_leads_nowhere(recipe: DictConfig, tmp_path: Path) -> None:
    recipe.launcher.build_policy = None
    with pytest.raises(run.RunError, match="experiments/tiny_policy does not exist"):
        run.prepare_policy(recipe)
    (tmp_path / "experiments/tiny_policy").mkdir(parents=True)
    with pytest.raises(run.RunError, match="without config.json"):
        run.prepare_policy(recipe)


def test_a_policy_that_cannot_be_built(recipe: DictConfig, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise SystemExit(3)\n")
    recipe.launcher.build_policy = "broken.py"
    with pytest.raises(run.RunError, match=r"building the policy failed: broken\.py"):
        run.prepare_policy(recipe)


def test_a_port_in_use_is_said_with_the_way_out(
    recipe: DictConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "SERVICE_PYTHON", Path(sys.executable))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        recipe.env_service.env_url = f"http://127.0.0.1:{port}"
        with pytest.raises(run.RunError, match=r"cannot use .*env_service\.env_url="):
            run.start_service(recipe, Family())


def test_earlier_outputs_are_set_aside_and_never_lost(recipe: DictConfig, tmp_path: Path) -> None:
    folder = tmp_path / "experiments/quickstart"
    for content in ("first", "second"):
        (folder / "loop").mkdir(parents=True)
        (folder / "loop/rounds.jsonl").write_text(content)
        run.set_earlier_outputs_aside(recipe)
        assert not folder.exists()
    kept = [tmp_path / f"experiments/quickstart.{n}/loop/rounds.jsonl" for n in (1, 2)]
    assert [path.read_text() for path in kept] == ["first", "second"]


def test_outputs_stay_where_a_run_is_resumed(recipe: DictConfig, tmp_path: Path) -> None:
    (tmp_path / "experiments/quickstart").mkdir(parents=True)
    recipe.trainer.resume_mode = "auto"
    run.set_earlier_outputs_aside(recipe)
    assert (tmp_path / "experiments/quickstart").exists()


TRAINERS = {
    "fails": "raise ValueError('no such layer (17) here')",
    "fails_in_ray": (
        "print('\\x1b[36m(Runner pid=7)\\x1b[0m seal.client.EnvironmentFault: 3 lost')\n"
        "raise SystemExit(1)"
    ),
    "hangs": "import time; time.sleep(600)",
    "ends": "pass",
}


def train(recipe: DictConfig, tmp_path: Path, what: str, service: str | None = None) -> None:
    """Run `run.train` with a stand-in for seal.train.main and, maybe, for the service."""
    package = tmp_path / "seal/train"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    # The training process runs in the project's folder and finds its modules there.
    (package / "main.py").write_text(TRAINERS[what])
    recipe.launcher.environment = {}
    family = Family()
    ended: subprocess.Popen[bytes] | None = None
    if service is not None:
        ended = family.start(
            [sys.executable, "-c", service], tmp_path / "service.log", {}, tmp_path
        )
    watch = run.Watch(lambda line: None, lambda line: None)
    try:
        run.train(recipe, tmp_path / "config.yaml", family, ended, watch)
    finally:
        family.end()
        assert family.members() == []


def test_a_training_process_that_ends_well(recipe: DictConfig, tmp_path: Path) -> None:
    train(recipe, tmp_path, "ends")


def test_the_reason_of_a_failure_is_its_exception(recipe: DictConfig, tmp_path: Path) -> None:
    with pytest.raises(run.RunError, match=r"failed: ValueError: no such layer \(17\) here"):
        train(recipe, tmp_path, "fails")


def test_the_reason_is_found_behind_what_ray_puts_before_a_line(
    recipe: DictConfig, tmp_path: Path
) -> None:
    with pytest.raises(run.RunError, match=r"failed: seal\.client\.EnvironmentFault: 3 lost"):
        train(recipe, tmp_path, "fails_in_ray")


def test_a_phase_that_never_ends_is_ended(recipe: DictConfig, tmp_path: Path) -> None:
    recipe.launcher.stall_timeout_s = 1
    with pytest.raises(run.RunError, match="nothing happened for 1 s in the phase 'start'"):
        train(recipe, tmp_path, "hangs")


def test_a_service_that_dies_ends_the_run(recipe: DictConfig, tmp_path: Path) -> None:
    with pytest.raises(run.RunError, match=r"service ended during the run \(exit code 7\)"):
        train(recipe, tmp_path, "hangs", service="raise SystemExit(7)")

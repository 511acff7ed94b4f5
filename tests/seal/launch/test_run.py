import shlex
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from omegaconf import DictConfig
from project_folder import ROOT

from seal.launch import building, run
from seal.launch.folders import RunError
from seal.launch.processes import Family
from seal.launch.recipe import EXP, load_recipe


def test_a_policy_is_built_once(recipe: DictConfig, tmp_path: Path) -> None:
    (tmp_path / "make.py").write_text(
        "import os, sys, pathlib\n"
        "pathlib.Path(sys.argv[1]).mkdir(parents=True)\n"
        "pathlib.Path(sys.argv[1], 'config.json').touch()\n"
        "assert 'SEAL_LAUNCH_ID' in os.environ\n"
    )
    recipe.launcher.build_policy = "make.py data/tiny_policy"
    assert building.prepare_policy(recipe, Family()) > 0.0
    assert building.prepare_policy(recipe, Family()) == 0.0


def test_launches_at_the_same_time_build_a_policy_once(recipe: DictConfig, tmp_path: Path) -> None:
    (tmp_path / "make.py").write_text(
        "import pathlib, time\n"
        "pathlib.Path('begun').touch(exist_ok=False)\n"
        "while not pathlib.Path('go').exists(): time.sleep(0.05)\n"
        "pathlib.Path('data/tiny_policy').mkdir(parents=True)\n"
        "pathlib.Path('data/tiny_policy/config.json').touch()\n"
    )
    recipe.launcher.build_policy = "make.py"
    said: list[str] = []

    def waits(text: str) -> None:
        said.append(text)
        (tmp_path / "go").touch()

    with ThreadPoolExecutor() as launches:
        made = [launches.submit(building.prepare_policy, recipe, Family(), waits) for _ in range(2)]
        assert all(one.result() > 0.0 for one in made)
    assert said == ["waiting for another launch, which is building tiny_policy"]


def test_a_policy_that_is_not_built_is_an_error(recipe: DictConfig, tmp_path: Path) -> None:
    (tmp_path / "make.py").write_text("raise SystemExit(3)")
    recipe.launcher.build_policy = "make.py"
    with pytest.raises(RunError, match=r"building the policy failed: make\.py"):
        building.prepare_policy(recipe, Family())


STEP = """\
import pathlib, sys
name, status, made = sys.argv[1:4]
with open("order.txt", "a") as order:
    order.write(name + "\\n")
if made != "nothing":
    pathlib.Path(made).mkdir(parents=True)
    pathlib.Path(made, "config.json").touch()
raise SystemExit(int(status))
"""
"""A command that notes its turn, makes a model or nothing, and ends with a status."""


@pytest.mark.parametrize(
    ("commands", "ran", "complaint"),
    [
        (["get 0 models/whole", "warm 0 {path}"], "get warm", None),
        (["get 0 models/whole", "warm 3 nothing", "late 0 {path}"], "get warm", "warm 3 nothing$"),
        # The status counts, whatever was made.
        (["get 1 models/whole", "warm 0 {path}"], "get", "get 1 models/whole$"),
        (["get 0 models/whole", "warm 0 other"], "get warm", "warm 0 other did not make {path}$"),
        # What an earlier command makes is there when all have ended.
        (["get 0 {path}", "look 0 nothing"], "get look", None),
    ],
)
def test_several_commands_build_a_policy_in_turn(
    commands: list[str],
    ran: str,
    complaint: str | None,
    recipe: DictConfig,
    tmp_path: Path,
) -> None:
    (tmp_path / "step.py").write_text(STEP)
    path = recipe.actor_rollout_ref.model.path = "models/warm one"
    quoted = [f"step.py {one}".format(path=f"'{path}'") for one in commands]
    recipe.launcher.build_policy = quoted
    if complaint is None:
        assert building.prepare_policy(recipe, Family()) > 0.0
        assert (tmp_path / path / "config.json").is_file()
    else:
        said = complaint.format(path=path)
        with pytest.raises(RunError, match=rf"^building the policy failed: step\.py {said}"):
            building.prepare_policy(recipe, Family())
    assert (tmp_path / "order.txt").read_text().split() == ran.split()


@pytest.mark.parametrize("nothing", [None, "", []])
def test_no_command_builds_no_policy(nothing: object, recipe: DictConfig) -> None:
    recipe.launcher.build_policy = nothing
    assert building.prepare_policy(recipe, Family()) == 0.0


def test_smollm2s_commands_are_there_and_make_what_the_next_one_takes() -> None:
    recipe = load_recipe(ROOT / "exp/smollm2.yaml", [])
    get, warm = (shlex.split(command) for command in recipe.launcher.build_policy)
    assert (get[0], warm[0]) == ("scripts/get_smollm2.py", "scripts/warm_up.py")
    with warnings.catch_warnings():  # of what they import
        warnings.simplefilter("ignore")
        import warm_up
    args = warm_up.parse_arguments(warm[1:])
    assert get[1:] == ["--out", str(args.model)]
    assert str(args.out) == recipe.actor_rollout_ref.model.path
    assert (EXP / f"backbone/{args.backbone}.yaml").is_file()
    assert (ROOT / args.split).is_file()


def test_the_processor_time_of_a_service_is_that_of_all_its_processes() -> None:
    assert run.service_cpu_s(None) is None
    code = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"
    parent = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {code!r} + "
    parent += "'time.sleep(600)']); time.sleep(600)"
    service = subprocess.Popen([sys.executable, "-c", parent])
    try:
        while (run.service_cpu_s(service) or 0.0) < 0.3:
            assert service.poll() is None
    finally:
        for process in psutil.Process(service.pid).children(recursive=True):
            process.kill()
        service.kill()
        service.wait()
    assert run.service_cpu_s(service) is None

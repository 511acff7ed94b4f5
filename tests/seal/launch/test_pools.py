"""The pools of synthetic tasks of a run: found, made, checked, given to the service, recorded."""

import json
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf
from pool_files import pool_rows, write_pool
from project_folder import ROOT, make_checkpoint, note_latest, write_tasks

from seal.launch import building, pools
from seal.launch.check import before_start
from seal.launch.check.finding import Level
from seal.launch.folders import RunError
from seal.launch.processes import Family
from seal.launch.record import Options, record_launch
from seal.launch.resume import check_resume, check_same_pools
from seal.tasks.pools import report_file, table_file

Rows = list[dict[str, Any]]


def make_pool(root: Path, name: str, count: int = 4, scenarios: tuple[int, ...] = (7, 17)) -> Rows:
    """A pool with all three files."""
    rows = pool_rows(name, count, scenarios)
    write_pool(root, name, rows)
    pools.service_file(name).parent.mkdir(parents=True, exist_ok=True)
    pools.service_file(name).write_bytes(b"with references")
    return rows


def as_texts(rows: Rows) -> dict[str, str]:
    return {row["task_id"]: row["prompt"][0]["content"] for row in rows}


@pytest.fixture
def pooled(recipe: DictConfig, tmp_path: Path) -> DictConfig:
    """A run that draws from the pool "drawn" and validates the pool "unseen_2"."""
    make_pool(tmp_path, "drawn")
    unseen = make_pool(tmp_path, "unseen_2", scenarios=(40,))
    write_tasks(
        tmp_path / "data/train.parquet", {"multi_turn_base_7": "a", "multi_turn_base_9": "b"}
    )
    write_tasks(
        tmp_path / "data/val.parquet",
        {"multi_turn_base_7": "a", "multi_turn_base_50": "c", **as_texts(unseen)},
    )
    recipe.data.train_files, recipe.data.val_files = "data/train.parquet", "data/val.parquet"
    recipe.data.synthetic_tasks, recipe.data.synthetic_share = "drawn", 0.5
    return recipe


def test_a_run_needs_the_pool_it_draws_from_and_those_of_its_data_files(pooled: DictConfig) -> None:
    assert pools.needed(pooled) == ("drawn", "unseen_2")
    assert {*pools.hashes(pooled)} == {"drawn", "unseen_2"}
    pooled.data.synthetic_tasks = None
    assert pools.needed(pooled) == ("unseen_2",)
    pooled.data.val_files = pooled.data.train_files
    assert pools.needed(pooled) == ()
    assert pools.check_pools(pooled, True) == ""


def test_what_a_run_uses_is_said(pooled: DictConfig) -> None:
    assert pools.check_pools(pooled, True) == (
        "drawn: 4 tasks of 2 scenarios, share 0.5; unseen_2: 4 tasks of 1 scenarios, of the data "
        "files"
    )
    (finding,) = before_start.synthetic_tasks(pooled, True)
    assert finding.level is Level.OK and finding.message == pools.check_pools(pooled, True)


def test_the_service_says_where_its_files_are() -> None:
    """env_service/ cannot be imported here."""
    source = (ROOT / "env_service/environments/bfcl/synthesis/pool.py").read_text("utf-8")
    assert f'"{pools.TASKS}/{{name}}.tasks.jsonl"' in source
    assert 'f"data/synthetic/{name}.jsonl"' in source


# ---- what is evaluated -------------------------------------------------------------------------


def test_seeds_of_evaluated_scenarios_are_refused(pooled: DictConfig, tmp_path: Path) -> None:
    # Scenario 7 is evaluated by a task that is trained on, too.
    pools.check_pools(pooled, True)
    for name, text in (("multi_turn_miss_func_17", "x"), ("multi_turn_base_17", "x")):
        write_tasks(tmp_path / "data/val.parquet", {"multi_turn_base_7": "a", name: text})
        with pytest.raises(RunError, match=r"1 of the 2 scenarios .* \(17\).*\+protocol=clean"):
            pools.check_pools(pooled, True)


def test_a_task_that_is_not_trained_on_does_not_excuse_its_scenario(pooled: DictConfig) -> None:
    # With share 1 nothing of data.train_files is trained on.
    pooled.data.synthetic_share = 1.0
    with pytest.raises(RunError, match=r"1 of the 2 scenarios .* \(7\)"):
        pools.check_pools(pooled, True)


def test_another_pool_of_the_same_scenarios_is_evaluated_in_vain(
    pooled: DictConfig, tmp_path: Path
) -> None:
    other = make_pool(tmp_path, "other", scenarios=(17, 18))
    write_tasks(tmp_path / "data/val.parquet", as_texts(other))
    with pytest.raises(RunError, match="1 of the 2 scenarios"):
        pools.check_pools(pooled, True)
    # Tasks of the drawn pool itself are trained on.
    write_tasks(tmp_path / "data/val.parquet", as_texts(pool_rows("drawn", 4)))
    pools.check_pools(pooled, True)


def test_many_scenarios_are_counted_and_some_named(pooled: DictConfig, tmp_path: Path) -> None:
    make_pool(tmp_path, "drawn", 30, tuple(range(100, 120)))
    write_tasks(tmp_path / "data/val.parquet", {f"multi_turn_base_{n}": "" for n in range(110)})
    with pytest.raises(RunError, match=r"10 of the 20 .* \(100, 101, 102, 103, 104, \.\.\.\)"):
        pools.check_pools(pooled, True)


# ---- files that are not what they should be ----------------------------------------------------


def test_a_data_file_of_another_pool_of_that_name(pooled: DictConfig, tmp_path: Path) -> None:
    for changed in (
        {"synthetic_unseen_2_000001_40": "another message"},
        {"synthetic_unseen_2_000099_40": "do 99"},
    ):
        write_tasks(tmp_path / "data/val.parquet", changed)
        with pytest.raises(RunError, match=r"val\.parquet has a row of synthetic_unseen_2_0000"):
            pools.check_pools(pooled, True)


def test_a_data_file_that_has_no_tasks(pooled: DictConfig, tmp_path: Path) -> None:
    (tmp_path / "data/val.parquet").write_text("no table")
    with pytest.raises(RunError, match="cannot be read as tasks: each row needs a prompt"):
        pools.needed(pooled)
    (finding,) = before_start.synthetic_tasks(pooled, True)
    assert finding.level is Level.ERROR
    # Another check names it.
    (tmp_path / "data/val.parquet").unlink()
    assert pools.needed(pooled) == ("drawn",)


def test_a_missing_file_is_named_with_the_command_that_makes_it(
    pooled: DictConfig, tmp_path: Path
) -> None:
    pools.service_file("unseen_2").unlink()
    for file in (pools.service_file("unseen_2"), table_file(tmp_path, "drawn")):
        file.unlink(missing_ok=True)
        with pytest.raises(RunError, match=f"{file} is missing") as failed:
            pools.check_pools(pooled, True)
        assert "-m env_service.environments.bfcl.synthesis make " in str(failed.value)
    # Another machine's service has references of its own.
    make_pool(tmp_path, "drawn")
    assert pools.missing(pooled, False) == []
    pools.check_pools(pooled, False)


def test_references_of_another_pool(pooled: DictConfig) -> None:
    pools.service_file("drawn").write_bytes(b"with others")
    with pytest.raises(RunError, match=r"is not the report of .*drawn\.tasks\.jsonl"):
        pools.check_pools(pooled, True)
    pools.check_pools(pooled, False)


# ---- made --------------------------------------------------------------------------------------

MAKE = """
import sys
from pathlib import Path
Path("made.txt").open("a").write(" ".join(sys.argv[1:]) + "\\n")
if sys.argv[2] == "{fails}":
    raise SystemExit(3)
if sys.argv[2] != "{lies}":
    source, target = Path("kept"), Path()
    for path in source.rglob(sys.argv[2] + ".*"):
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(path.read_bytes())
"""


@pytest.fixture
def unmade(pooled: DictConfig, tmp_path: Path) -> DictConfig:
    """The same run with a command for each pool; neither of them is there."""
    for name in ("drawn", "unseen_2"):
        files = (table_file, report_file)
        for path in [file(tmp_path, name) for file in files] + [pools.service_file(name)]:
            kept = tmp_path / "kept" / path.relative_to(tmp_path)
            kept.parent.mkdir(parents=True, exist_ok=True)
            path.rename(kept)
    python = tmp_path / ".venv-bfcl/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to(ROOT / ".venv/bin/python")
    (tmp_path / "make.py").write_text(MAKE)
    pooled.launcher.build_tasks = ["make.py make drawn --tasks 4", "make.py make unseen_2"]
    return pooled


def test_missing_pools_are_made_once(unmade: DictConfig, tmp_path: Path, family: Family) -> None:
    (finding,) = before_start.synthetic_tasks(unmade, True)
    assert finding.level is Level.OK
    assert finding.message.startswith("drawn, unseen_2: not there; the run makes them: make.py")
    assert building.prepare_pools(unmade, family, True)
    assert not building.prepare_pools(unmade, family, True)
    # Only what is missing is made again.
    pools.service_file("unseen_2").unlink()
    assert not building.prepare_pools(unmade, family, False)
    assert building.prepare_pools(unmade, family, True)
    assert (tmp_path / "made.txt").read_text().splitlines() == [
        "make drawn --tasks 4",
        "make unseen_2",
        "make unseen_2",
    ]


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("fails", r"making synthetic tasks failed: make\.py make unseen_2"),
        ("lies", r"failed: no command of launcher\.build_tasks made unseen_2"),
    ],
)
def test_pools_that_are_not_made_are_an_error(
    unmade: DictConfig, tmp_path: Path, family: Family, fault: str, why: str
) -> None:
    (tmp_path / "make.py").write_text(MAKE.replace(f"{{{fault}}}", "unseen_2"))
    with pytest.raises(RunError, match=why):
        building.prepare_pools(unmade, family, True)


def test_what_was_made_is_checked(unmade: DictConfig, tmp_path: Path, family: Family) -> None:
    write_tasks(tmp_path / "data/val.parquet", {"multi_turn_base_17": ""})
    with pytest.raises(RunError, match=r"\+protocol=clean"):
        building.prepare_pools(unmade, family, True)


def test_without_commands_a_missing_pool_is_an_error(unmade: DictConfig, family: Family) -> None:
    unmade.launcher.build_tasks = None
    with pytest.raises(RunError, match="there is no pool 'drawn'"):
        building.prepare_pools(unmade, family, True)
    (finding,) = before_start.synthetic_tasks(unmade, True)
    assert finding.level is Level.ERROR


# ---- recorded ----------------------------------------------------------------------------------

OPTIONS = Options(conf=Path("exp/quickstart.yaml"), overrides=[], argv=[])


def test_a_run_goes_on_with_the_same_pools_alone(pooled: DictConfig, tmp_path: Path) -> None:
    folder = record_launch(pooled, OPTIONS, "0123", None)
    record = json.loads((folder / "record.json").read_text())
    assert record["pools"] == pools.hashes(pooled)
    note_latest(make_checkpoint(tmp_path, 8))
    assert check_resume(pooled) == 8
    report = report_file(tmp_path, "unseen_2")
    facts = json.loads(report.read_text())
    report.write_text(json.dumps({**facts, "tasks_sha256": "f" * 64}))
    with pytest.raises(RunError, match="the pool unseen_2 is not the one that the run began with"):
        check_resume(pooled)
    # What is missing may be made yet; then it is compared.
    report.unlink()
    assert check_resume(pooled) == 8
    report.write_text(json.dumps(facts))
    check_same_pools(pooled)


def test_a_record_that_names_no_pools(pooled: DictConfig, tmp_path: Path) -> None:
    folder = tmp_path / "launcher_record/quickstart"
    folder.mkdir(parents=True)
    (folder / "record.json").write_text("{}")
    OmegaConf.save(pooled, folder / "config.yaml")
    note_latest(make_checkpoint(tmp_path, 8))
    with pytest.raises(RunError, match="does not say which synthetic tasks the run has had"):
        check_resume(pooled)

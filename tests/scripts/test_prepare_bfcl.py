import json
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import prepare_bfcl
import pytest

from seal.launch.recipe import EXP, load_recipe
from seal.settings.sections import read_settings
from seal.tasks import files, quickstart, tables
from seal.tasks.pools import pool_tasks, read_pool
from seal.tasks.splits import (
    CATEGORIES,
    MARKS,
    BadData,
    Split,
    Task,
    development_scenarios,
    leakage,
    linked_scenarios,
)

ROOT = Path(__file__).resolve().parents[2]
MADE = {
    "bfcl_400_split.json",
    "bfcl_clean_eval.parquet",
    "bfcl_clean_split.json",
    "bfcl_clean_train.parquet",
    "bfcl_eval_400.parquet",
    "bfcl_scenario_eval.parquet",
    "bfcl_scenario_split.json",
    "bfcl_scenario_train.parquet",
    "bfcl_train.parquet",
    "quickstart_eval.parquet",
    "quickstart_split.json",
    "quickstart_tasks.json",
    "quickstart_train.parquet",
    "smollm2_eval.parquet",
    "smollm2_split.json",
    "smollm2_study_eval.parquet",
    "smollm2_train.parquet",
    "tiny_study_eval.parquet",
    "tiny_study_train.parquet",
}
SPLITS = {
    "bfcl_400_split.json": ("bfcl_train.parquet", "bfcl_eval_400.parquet"),
    "bfcl_scenario_split.json": ("bfcl_scenario_train.parquet", "bfcl_scenario_eval.parquet"),
}


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    return files.read_tasks(files.bfcl_data(ROOT))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data")
    assert prepare_bfcl.main([f"--out={out}", f"--processed={out / 'processed.jsonl'}"]) == 0
    return out


def test_the_committed_files_are_what_the_script_makes(made: Path) -> None:
    assert {path.name for path in made.iterdir()} == MADE | {"processed.jsonl"}
    for name in MADE:
        assert (ROOT / "data" / name).read_bytes() == (made / name).read_bytes(), name


@pytest.mark.parametrize("name", SPLITS)
def test_a_split_halves_every_category_and_its_tables_hold_it(name: str, made: Path) -> None:
    split = json.loads((made / name).read_text())
    assert not set(split["train"]) & set(split["val"])
    for part, table in zip(("train", "val"), SPLITS[name], strict=True):
        for category in CATEGORIES:
            assert sum(task.startswith(category) for task in split[part]) == 100
        rows = pd.read_parquet(made / table)
        assert [info["task_id"] for info in rows["extra_info"]] == split[part]


def test_the_scenario_split_has_no_scenario_on_both_sides(made: Path, tasks: list[Task]) -> None:
    split = files.read_split(made / "bfcl_scenario_split.json", tasks)
    sides = [{task.scenario for task in side} for side in (split.train, split.val)]
    assert sides[0] | sides[1] == set(range(200))
    assert len(sides[0]) == len(sides[1]) == 100
    linked = [group for group in linked_scenarios(tasks) if len(group) > 1]
    assert linked == [[40, 43], [102, 148], [107, 136], [120, 124]]
    assert all(sum(side.issuperset(group) for side in sides) == 1 for group in linked)


def test_leakage_of_both_splits(made: Path, tasks: list[Task]) -> None:
    leaking, disjoint = (
        [tuple(row.shared.values()) for row in leakage(files.read_split(made / name, tasks))]
        for name in SPLITS
    )
    assert tuple(MARKS) == ("scenario", "calls", "turns", "messages", "message")
    assert leaking == [
        (92, 89, 46, 69, 90),
        (92, 91, 23, 67, 90),
        (92, 90, 17, 0, 90),
        (92, 85, 44, 74, 90),
        (368, 355, 130, 210, 360),
    ]
    assert disjoint == [(0, 0, 0, 0, 0)] * 5


def test_rows_say_which_mode_and_hold_no_reference(made: Path) -> None:
    train, val = (pd.read_parquet(made / f"bfcl_{n}.parquet") for n in ("train", "eval_400"))
    assert {info["mode"] for info in train["extra_info"]} == {"train"}
    assert {info["mode"] for info in val["extra_info"]} == {"eval"}
    assert {info["temperature"] for frame in (train, val) for info in frame["extra_info"]} == {None}
    assert {row["ground_truth"] for row in train["reward_model"]} == {""}


def test_the_quickstart_evaluates_real_tasks_of_scenarios_that_no_training_task_has(
    made: Path, tasks: list[Task]
) -> None:
    published = json.loads((made / "bfcl_400_split.json").read_text())
    trained = json.loads((made / "quickstart_tasks.json").read_text())
    split = json.loads((made / "quickstart_split.json").read_text())
    assert len(trained) == 32 and set(trained) <= set(published["train"])
    assert ids(pd.read_parquet(made / "quickstart_train.parquet")) == trained
    rows = pd.read_parquet(made / "quickstart_eval.parquet")
    suites: dict[str, set[str]] = {}
    for info in rows["extra_info"]:
        suites.setdefault(info["suite"], set()).add(info["task_id"])
    assert suites == {"fixed": set(trained), "benchmark": set(split["val"])}
    assert len(suites["benchmark"]) == 24
    known = {task.task_id: task for task in tasks}
    sides = {side: {known[one].scenario for one in split[side]} for side in quickstart.SIDES}
    seen = sides["train"] | {known[one].scenario for one in trained}
    assert not seen & sides["val"] and not seen & sides["development"]
    assert not sides["development"] & sides["val"]
    # A side's worlds have a class of the quickstart; those of "val" have no other class.
    classes = {side: [set(known[one].involved_classes) for one in split[side]] for side in sides}
    assert all(some & quickstart.CLASSES for side in classes.values() for some in side)
    assert all(some <= quickstart.CLASSES for some in classes["val"])
    assert all(some - quickstart.CLASSES for some in classes["development"])


def test_the_unseen_suite_is_the_pool_that_the_quickstart_makes(tmp_path: Path) -> None:
    """Made again by the recipe's command, in a folder of its own."""
    command = read_settings(load_recipe(EXP / "quickstart.yaml", [])).launcher.build_tasks[1]
    python = str(ROOT / ".venv-bfcl/bin/python")
    made = [python, *shlex.split(command), "--root", str(tmp_path)]
    subprocess.run(made, cwd=ROOT, check=True, capture_output=True)
    pool = read_pool("quickstart_unseen", tmp_path)
    assert len(pool.rows) == 128
    rows = tables.sampled_rows(pool_tasks(pool), "unseen", 2)
    committed = ROOT / "data/quickstart_unseen_eval.parquet"
    assert committed.read_bytes() == tables.parquet(rows)
    split = json.loads((ROOT / "data/quickstart_split.json").read_text())
    assert {row.seed_task for row in pool.rows} <= set(split["development"])


SMOLLM2_SIDES = ("train", "development", "val")


@pytest.fixture(scope="module")
def smollm2(made: Path, tasks: list[Task]) -> dict[str, list[Task]]:
    """The sides of SmolLM2's split."""
    split = json.loads((made / "smollm2_split.json").read_text())
    assert split.keys() == {"seed", *SMOLLM2_SIDES}
    by_id = {task.task_id: task for task in tasks}
    return {side: [by_id[task_id] for task_id in split[side]] for side in SMOLLM2_SIDES}


def test_smollm2s_development_shares_nothing_with_training_or_evaluation(
    smollm2: dict[str, list[Task]], tasks: list[Task]
) -> None:
    scenarios = {side: {task.scenario for task in smollm2[side]} for side in SMOLLM2_SIDES}
    sizes = {side: (len(scenarios[side]), len(smollm2[side])) for side in SMOLLM2_SIDES}
    assert sizes == {"train": (80, 320), "development": (20, 20), "val": (100, 400)}
    assert set.union(*scenarios.values()) == set(range(200))
    # Three sides that have 200 scenarios together are disjoint. Nor does a link lead across.
    for group in linked_scenarios(tasks):
        assert sum(not side.isdisjoint(group) for side in scenarios.values()) == 1, group
    for held_back in ("development", "val"):
        beside = leakage(Split(smollm2["train"], smollm2[held_back]))
        assert all(not any(row.shared.values()) for row in beside)
    between = leakage(Split(smollm2["development"], smollm2["val"]))
    assert all(not any(row.shared.values()) for row in between)


def test_linked_scenarios_are_set_apart_together(made: Path, tasks: list[Task]) -> None:
    training = files.read_split(made / "bfcl_scenario_split.json", tasks).train
    linked = [group for group in linked_scenarios(training) if len(group) > 1]
    assert len(linked) > 1
    chosen = [development_scenarios(training, seed, 20) for seed in range(50)]
    assert {len(one) for one in chosen} <= {19, 20}
    for group in linked:
        together = [one.issuperset(group) for one in chosen]
        assert any(together) and not all(together)
        assert together == [not one.isdisjoint(group) for one in chosen]


def test_smollm2_is_evaluated_on_the_side_that_others_are(
    smollm2: dict[str, list[Task]], made: Path
) -> None:
    others = json.loads((made / "bfcl_scenario_split.json").read_text())
    assert [task.task_id for task in smollm2["val"]] == others["val"]
    assert {task.task_id for task in smollm2["train"]} < set(others["train"])


def test_smollm2_trains_on_base_tasks_of_the_training_side(
    smollm2: dict[str, list[Task]], made: Path
) -> None:
    rows = pd.read_parquet(made / "smollm2_train.parquet")
    ids = [info["task_id"] for info in rows["extra_info"]]
    base = [task.task_id for task in smollm2["train"] if task.category == "multi_turn_base"]
    assert len(ids) == 80 and sorted(ids) == sorted(base)
    assert {(info["mode"], info["suite"]) for info in rows["extra_info"]} == {("train", "train")}


def test_smollm2s_suites(smollm2: dict[str, list[Task]], made: Path) -> None:
    rows = pd.read_parquet(made / "smollm2_eval.parquet")
    assert {info["mode"] for info in rows["extra_info"]} == {"eval"}
    kinds = Counter(
        (info["suite"], info["temperature"], rollouts)
        for info, rollouts in zip(rows["extra_info"], rows["__rollout_n__"], strict=True)
    )
    assert kinds == {
        ("development", 1.0, 4): 20,
        ("fixed", 1.0, 4): 32,
        ("held_out", 1.0, 2): 100,
        # At the recipe's own temperature, which is 0.
        ("held_out_greedy", None, 1): 100,
    }
    of_suite: dict[str, set[str]] = {suite: set() for suite, _, _ in kinds}
    for info in rows["extra_info"]:
        of_suite[info["suite"]].add(info["task_id"])
        assert info["category"] == "multi_turn_base"
    base = {
        side: {task.task_id for task in smollm2[side] if task.category == "multi_turn_base"}
        for side in SMOLLM2_SIDES
    }
    trained = [
        info["task_id"] for info in pd.read_parquet(made / "smollm2_train.parquet").extra_info
    ]
    assert of_suite == {
        "development": base["development"],
        # The shortest training tasks.
        "fixed": set(trained[:32]),
        "held_out": base["val"],
        "held_out_greedy": base["val"],
    }


def test_smollm2s_study_shows_the_training_tasks_with_the_interface_too(made: Path) -> None:
    recipe = pd.read_parquet(made / "smollm2_eval.parquet")
    study = pd.read_parquet(made / "smollm2_study_eval.parquet")
    sampled = recipe[recipe["__rollout_n__"] > 1]
    assert ids(study.head(len(sampled))) == ids(sampled)
    shown = study.tail(-len(sampled))
    kinds = {(info["suite"], info["mode"], info["temperature"]) for info in shown["extra_info"]}
    assert kinds == {("fixed_with_interface", "train", 1.0)}
    fixed = [info["suite"] == "fixed" for info in recipe["extra_info"]]
    assert ids(shown) == ids(recipe[fixed])
    assert set(shown["__rollout_n__"]) == set(recipe[fixed]["__rollout_n__"])


def ids(rows: Any) -> list[str]:
    return [info["task_id"] for info in rows["extra_info"]]


def test_the_clean_protocol_has_smollm2s_scenarios_with_all_categories(
    smollm2: dict[str, list[Task]], made: Path, tasks: list[Task]
) -> None:
    split = json.loads((made / "bfcl_clean_split.json").read_text())
    assert {side: len(split[side]) for side in SMOLLM2_SIDES} == {
        "train": 320,
        "development": 80,
        "val": 400,
    }
    scenarios = {task.task_id: task.scenario for task in tasks}
    apart = {task.scenario for task in smollm2["development"]}
    assert {scenarios[task] for task in split["development"]} == apart
    rows = pd.read_parquet(made / "bfcl_clean_eval.parquet")
    assert ids(rows) == [*split["development"], *split["val"]]
    suites = Counter(info["suite"] for info in rows["extra_info"])
    assert suites == {"development": 80, "benchmark": 400}
    assert ids(pd.read_parquet(made / "bfcl_clean_train.parquet")) == split["train"]


def test_the_tiny_study_trains_on_three_quarters_of_the_quickstarts_tasks(made: Path) -> None:
    trained = ids(pd.read_parquet(made / "tiny_study_train.parquet"))
    rows = pd.read_parquet(made / "tiny_study_eval.parquet")
    kinds = Counter(
        (info["suite"], info["mode"], info["temperature"], rollouts)
        for info, rollouts in zip(rows["extra_info"], rows["__rollout_n__"], strict=True)
    )
    assert kinds == {
        ("fixed", "eval", 1.0, 32): 24,
        ("progress", "eval", 1.0, 8): 24,
        ("untrained", "eval", 1.0, 16): 8,
        ("fixed_with_interface", "train", 1.0, 8): 24,
    }
    of_suite: dict[str, set[str]] = {suite: set() for suite, *_ in kinds}
    for info in rows["extra_info"]:
        of_suite[info["suite"]].add(info["task_id"])
    assert all(
        of_suite[name] == set(trained) for name in ("fixed", "progress", "fixed_with_interface")
    )
    known = json.loads((made / "quickstart_tasks.json").read_text())
    assert of_suite["untrained"] == set(known) - set(trained)


def test_another_seed_splits_otherwise(made: Path, tasks: list[Task]) -> None:
    others = tables.recipe_files(tasks, seed=1)
    assert all(others[name] != (made / name).read_bytes() for name in SPLITS)


def test_the_run_prints_its_files_and_both_reports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare_bfcl.main([f"--out={tmp_path}", f"--processed={tmp_path / 'p.jsonl'}"])
    printed = capsys.readouterr().out
    assert all(f"{tmp_path / name}\n" in printed for name in (*MADE, "p.jsonl"))
    assert re.findall("Leakage of (.*)", printed) == list(SPLITS)
    assert [line.split()[1:] for line in printed.splitlines() if line.startswith("all ")] == [
        ["400", "400", "368", "355", "130", "210", "360"],
        ["400", "400", "0", "0", "0", "0", "0"],
    ]


def test_the_report_of_a_split_file_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    split = ROOT / "data/bfcl_400_split.json"
    prepare_bfcl.main([f"--leakage-report={split}", f"--out={tmp_path / 'out'}"])
    assert f"Leakage of {split}\n" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_somebody_else_s_split_gets_tables_of_its_own_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "theirs.json"
    split = {"train": ["multi_turn_base_7"], "val": ["multi_turn_miss_param_9"]}
    path.write_text(json.dumps(split))
    prepare_bfcl.main([f"--split-file={path}", f"--out={tmp_path / 'out'}"])
    assert sorted(made.name for made in (tmp_path / "out").iterdir()) == [
        "theirs_eval.parquet",
        "theirs_train.parquet",
    ]
    for part, mode, ids in (("train", "train", split["train"]), ("eval", "eval", split["val"])):
        (info,) = pd.read_parquet(tmp_path / f"out/theirs_{part}.parquet")["extra_info"]
        assert ([info["task_id"]], info["mode"]) == (ids, mode)
    assert "Leakage of" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--split-file", "--leakage-report"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"train": ["a"], "val": ["multi_turn_base_0"]}', "does not have: a$"),
        ("{", "is not JSON"),
        ("\xff", "is not JSON"),
        (None, "No such file"),
    ],
)
def test_a_split_file_that_cannot_be_used_is_named(
    option: str, content: str | None, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "theirs.json"
    if content is not None:
        path.write_bytes(content.encode("latin-1"))
    out = tmp_path / "out"
    with pytest.raises(SystemExit, match=f"^prepare_bfcl: .*theirs.json.*{message}"):
        prepare_bfcl.main([f"{option}={path}", f"--out={out}"])
    assert not out.exists()


def test_a_split_file_does_not_replace_a_recipe_s_table(tasks: list[Task]) -> None:
    with pytest.raises(BadData, match=r"bfcl_scenario_train\.parquet"):
        tables.split_files(Split(tasks[:1], tasks[1:2]), "bfcl_scenario")


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the files that hold the tasks, to break."""
    source, copy = files.bfcl_data(ROOT), tmp_path / "bfcl_eval_data"
    for category in CATEGORIES:
        for name in (f"BFCL_v4_{category}.json", f"possible_answer/BFCL_v4_{category}.json"):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, copy / name)
    return copy


BASE = "BFCL_v4_multi_turn_base.json"


@pytest.mark.parametrize(
    ("name", "pattern", "replacement", "message"),
    [
        (BASE, r"\A.*\n", "", "has 199 tasks.*foreign: multi_turn_base_0$"),
        (BASE, r"\A(.*\n)", r"\1\1", "has 201 tasks.*foreign: multi_turn_base_0$"),
        (BASE, "multi_turn_base_0", "multi_turn_base_1", "has 200.*_1 and 1 more$"),
        (BASE, "multi_turn_base_0", "another_0", "has 200.*another_0 and 1 more$"),
        (BASE, r"\A", "{\n", "line 1: not JSON"),
        (BASE, r"\A", "\n", "line 1: not JSON"),
        (BASE, r"(?s)\A.*", "", "has 0 tasks.*foreign: multi_turn_base_0 and 199 more"),
        (BASE, '"question"', '"asked"', "line 1: it has no list 'question'"),
        (f"possible_answer/{BASE}", r"\A.*\n", "", "no reference for multi_turn_base_0$"),
        (f"possible_answer/{BASE}", r"\A", "[]\n", "line 1: expected a JSON object"),
    ],
)
def test_bad_data_is_told_and_overwrites_nothing(
    name: str, pattern: str, replacement: str, message: str, copied: Path, tmp_path: Path
) -> None:
    text = (copied / name).read_text()
    (copied / name).write_text(re.sub(pattern, replacement, text, count=1))
    out = tmp_path / "out"
    out.mkdir()
    (out / "bfcl_400_split.json").write_text("old")
    with pytest.raises(SystemExit, match=f"^prepare_bfcl: .*multi_turn_base.json.*{message}"):
        prepare_bfcl.main([f"--bfcl-data={copied}", f"--out={out}", f"--processed={out / 'p'}"])
    assert [path.name for path in out.iterdir()] == ["bfcl_400_split.json"]
    assert (out / "bfcl_400_split.json").read_text() == "old"


def test_files_are_replaced_together_or_not_at_all(tmp_path: Path) -> None:
    first, folder = tmp_path / "a.json", tmp_path / "b.json"
    first.write_text("old")
    folder.mkdir()
    with pytest.raises(BadData, match=r"b\.json: it is a folder"):
        files.replace_all({first: b"new", folder: b"new"})
    with pytest.raises(BadData, match="cannot write .*exists"):
        files.replace_all({folder / "c.json": b"new", first / "d.json": b"new"})
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.json", "b.json"]
    assert first.read_text() == "old"
    files.replace_all({first: b"new", tmp_path / "sub/c.json": b"new"})
    assert first.read_text() == (tmp_path / "sub/c.json").read_text() == "new"
    assert sorted(path.name for path in tmp_path.rglob("*")) == [
        "a.json",
        "b.json",
        "c.json",
        "sub",
    ]


def test_a_folder_without_the_tasks_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="does not exist"):
        prepare_bfcl.main([f"--bfcl-data={tmp_path}", f"--out={tmp_path}"])


@pytest.mark.parametrize(
    ("python", "arguments"),
    [
        (Path(sys.executable), ["--leakage-report", str(ROOT / "data/bfcl_400_split.json")]),
        (ROOT / ".venv-bfcl/bin/python", ["--processed-only", "--processed=processed.jsonl"]),
    ],
)
def test_it_runs_from_any_folder(
    python: Path, arguments: list[str], tmp_path: Path, made: Path
) -> None:
    command = [str(python), str(ROOT / "scripts/prepare_bfcl.py"), *arguments]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    for written in tmp_path.iterdir():
        assert written.read_bytes() == (made / written.name).read_bytes()


@pytest.fixture(scope="module")
def defective() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((ROOT / "data/bfcl_defective_tasks.json").read_text())
    return document


def test_defective_tasks_exist_and_have_a_reason_and_a_source(
    defective: dict[str, Any], tasks: list[Task]
) -> None:
    assert defective.keys() == {"note", "tasks"}
    assert all(entry.keys() == {"task_id", "reason", "source"} for entry in defective["tasks"])
    assert all(text.strip() for entry in defective["tasks"] for text in entry.values())
    ids = [entry["task_id"] for entry in defective["tasks"]]
    assert len(ids) == len(set(ids)) and set(ids) <= {task.task_id for task in tasks}


def test_defective_tasks_are_as_their_reasons_say(
    defective: dict[str, Any], tasks: list[Task]
) -> None:
    by_id = {task.task_id: task for task in tasks}
    listed = [by_id[entry["task_id"]] for entry in defective["tasks"]]
    assert {task.scenario for task in listed} == {4, 49, 173}
    for task in listed:
        if task.scenario == 4:
            tweet = "Initial report content More unsorted data Unsorted data"
            assert f"content='{tweet}'" in task.program[-1]
            assert not any(tweet in message for message in task.messages)
        elif task.scenario == 49:
            assert task.reference[1][1] == "tail(file_name='file3.txt')"
            assert task.question[3] == []
        else:
            assert task.program[-1] == "close_ticket(ticket_id='ticket_001')"
            assert not any("ticket_001" in message for message in task.messages)
    data = files.bfcl_data(ROOT)
    rows = map(json.loads, (data / "BFCL_v4_multi_turn_miss_func.json").read_text().splitlines())
    held_back = {row["id"]: row["missed_function"] for row in rows}
    assert held_back["multi_turn_miss_func_49"] == {"3": ["wc", "tail", "cat"]}
    docs = map(json.loads, (data / "multi_turn_func_doc/ticket_api.json").read_text().splitlines())
    (close,) = (doc for doc in docs if doc["name"] == "close_ticket")
    assert close["parameters"]["properties"]["ticket_id"]["type"] == "integer"

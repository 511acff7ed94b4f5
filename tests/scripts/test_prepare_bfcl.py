import json
from pathlib import Path

import pandas as pd
import prepare_bfcl
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data")
    assert prepare_bfcl.main([f"--out={out}", f"--processed={out / 'processed.jsonl'}"]) == 0
    return out


def test_the_committed_files_are_what_the_script_makes(made: Path) -> None:
    committed = sorted(path.name for path in (ROOT / "data").iterdir())
    assert committed == sorted(
        path.name for path in made.iterdir() if path.name != "processed.jsonl"
    )
    for name in committed:
        assert (ROOT / "data" / name).read_bytes() == (made / name).read_bytes(), name


def test_the_split_halves_every_category(made: Path) -> None:
    split = json.loads((made / "bfcl_400_split.json").read_text())
    assert not set(split["train"]) & set(split["val"])
    for part in ("train", "val"):
        for category in prepare_bfcl.CATEGORIES:
            assert sum(task.startswith(category) for task in split[part]) == 100


def test_rows_say_which_mode_and_hold_no_reference(made: Path) -> None:
    train, val = (pd.read_parquet(made / f"bfcl_{n}.parquet") for n in ("train", "eval_400"))
    assert {info["mode"] for info in train["extra_info"]} == {"train"}
    assert {info["mode"] for info in val["extra_info"]} == {"eval"}
    assert {info["temperature"] for frame in (train, val) for info in frame["extra_info"]} == {None}
    assert {row["ground_truth"] for row in train["reward_model"]} == {""}


def test_the_quickstart_trains_on_training_tasks_and_never_on_its_benchmark(made: Path) -> None:
    split = json.loads((made / "bfcl_400_split.json").read_text())
    tasks = json.loads((made / "quickstart_tasks.json").read_text())
    assert len(tasks) == 32 and set(tasks) <= set(split["train"])
    rows = pd.read_parquet(made / "quickstart_eval.parquet")
    suites: dict[str, set[str]] = {}
    for info in rows["extra_info"]:
        suites.setdefault(info["suite"], set()).add(info["task_id"])
    assert suites["fixed"] == set(tasks)
    assert len(suites["benchmark"]) == 20 and suites["benchmark"] <= set(split["val"])


def test_another_seed_splits_otherwise(made: Path, tmp_path: Path) -> None:
    prepare_bfcl.main(["--seed=1", f"--out={tmp_path}", f"--processed={tmp_path / 'p.jsonl'}"])
    name = "bfcl_400_split.json"
    assert (tmp_path / name).read_text() != (made / name).read_text()


def test_a_folder_without_the_tasks_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="does not exist"):
        prepare_bfcl.main([f"--bfcl-data={tmp_path}", f"--out={tmp_path}"])

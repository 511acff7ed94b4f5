"""What the official programs are told, and what is read from the files that they really wrote.

official_results/ holds such files: bfcl/ made by official_recording.py, tau2/ by tau2-bench v0.2.0
in a run of two tasks with a tiny model on both sides (of its messages only the first are kept).
"""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest
from official_recording import (
    ANSWERS,
    RECORDED,
    RIGHT,
    judge,
    write_answers,
)
from scripted_endpoint import serving

from seal.evaluation import official_bfcl, official_tau2
from seal.evaluation.endpoint import Endpoint
from seal.evaluation.faults import EvaluationError
from seal.evaluation.official_bfcl import CATEGORIES, PYTHON, REGISTRY_NAME
from seal.evaluation.programs import watch
from seal.evaluation.settings import SETTINGS, keep_settings
from seal.evaluation.tables import BFCL_V4, MEMORY, TABLE_1, TAU2, WEB, model_figures, tables
from seal.launch.processes import Family
from seal.validation.evaluation_file import EVALUATION_FILE
from seal.validation.statistics import AVERAGE

CONNECTION_LOST = "Traceback\n  ...\nopenai.APIConnectionError: Connection error.\n"
TOO_LONG = "Traceback\n  ...\nopenai.BadRequestError: Error code: 400 - context length\n"
REFUSED = "Traceback\n  ...\nopenai.BadRequestError: Error code: 400 - no auto tool choice\n"
UNREAD = "Traceback\n  ...\njson.decoder.JSONDecodeError: Expecting value: line 1 column 1\n"


def scores_as_asked(folder: Path) -> None:
    scores = official_bfcl.read_scores(folder)
    assert scores == {name: right / ANSWERS for name, right in RIGHT.items()}


def test_scores_that_bfcl_eval_wrote_are_read() -> None:
    scores_as_asked(RECORDED / "bfcl")


@pytest.mark.slow
def test_the_real_program_judges_and_is_read(tmp_path: Path) -> None:
    if not PYTHON.exists():
        pytest.skip("no official environment; make it: bash scripts/setup_official.sh bfcl")
    write_answers(tmp_path)
    judge(tmp_path)
    scores_as_asked(tmp_path)


def evaluated(folder: Path) -> Path:
    """All suites of a model: official results, and a log of BFCL V3."""
    for suite in CATEGORIES:
        keep_settings(folder / suite, {"suite": suite, "tasks": None})
        shutil.copytree(RECORDED / "bfcl/score", folder / suite / "score")
        # Each suite's folder holds the scores of its own categories alone.
        for path in (folder / suite).rglob("*_score.json"):
            if not any(f"BFCL_v4_{name}_score.json" == path.name for name in CATEGORIES[suite]):
                path.unlink()
    expected = dict.fromkeys(TABLE_1[:-1], 4)
    settings = {"suite": "bfcl_v3", "tasks": None, "parquet": [EVALUATION_FILE, "1"]}
    keep_settings(folder / "bfcl_v3", {**settings, "expected": expected})
    lines = [
        {"step": 0, "suite": "benchmark", "task_id": f"{category}_{n}", "category": category}
        | {"score": float(n <= place)}
        for place, category in enumerate(TABLE_1[:-1])
        for n in range(4)
    ]
    log = folder / "bfcl_v3/0.jsonl"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_averages_are_those_of_bfcl_eval(tmp_path: Path) -> None:
    row = model_figures("SEAL", evaluated(tmp_path))
    with (RECORDED / "bfcl/score/data_agentic.csv").open() as file:
        [theirs] = csv.DictReader(file)
    for ours, name in ((WEB, "Web Search Summary"), (MEMORY, "Memory Summary")):
        assert f"{100 * row.figures[ours]:.2f}%" == theirs[name]
    assert f"{100 * row.figures[BFCL_V4]:.2f}%" == theirs["Agentic Overall Acc"]


def test_the_papers_tables(tmp_path: Path) -> None:
    folder = evaluated(tmp_path)
    row = model_figures("SEAL", folder)
    assert [row.figures[column] for column in TABLE_1] == [0.25, 0.5, 0.75, 1.0, 0.625]
    assert TAU2 not in row.figures and row.notes == ()
    assert [title[:7] for title, _ in tables([row])] == ["Table 1", "Table 2"]
    # Without a category there is no average.
    (folder / "bfcl_v4_memory/score").rename(folder / "elsewhere")
    log = folder / "bfcl_v3/0.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:13]))
    row = model_figures("SEAL", folder)
    assert not {MEMORY, BFCL_V4, AVERAGE, TABLE_1[3]} & row.figures.keys()
    assert row.figures[TABLE_1[2]] == 0.75
    assert row.notes == (
        "SEAL, bfcl_v3: multi_turn_long_context: 1 of 4 tasks",
        "SEAL, bfcl_v4_memory: not evaluated: memory_kv, memory_vector, memory_rec_sum",
    )


@pytest.mark.parametrize("written", [None, ""])
def test_without_a_log_there_is_no_figure(tmp_path: Path, written: str | None) -> None:
    log = evaluated(tmp_path) / "bfcl_v3/0.jsonl"
    log.unlink()
    if written is not None:
        log.write_text(written)
    row = model_figures("SEAL", tmp_path)
    assert not set(TABLE_1) & row.figures.keys()
    assert row.notes == ("SEAL, bfcl_v3: not evaluated",)


def test_tasks_of_another_file_are_named(tmp_path: Path) -> None:
    settings = evaluated(tmp_path) / "bfcl_v3" / SETTINGS
    settings.write_text(settings.read_text().replace(EVALUATION_FILE, "quickstart_eval.parquet"))
    [note] = model_figures("SEAL", tmp_path).notes
    assert note == "SEAL, bfcl_v3: tasks of quickstart_eval.parquet, 16 of the benchmark"


def test_a_folder_without_an_evaluation_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="holds no evaluation"):
        model_figures("SEAL", tmp_path)


def test_other_settings_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "bfcl_v3"
    keep_settings(folder, {"model": "a", "decoding": {"stop": ("x",)}})
    keep_settings(folder, {"model": "a", "decoding": {"stop": ("x",)}})
    with pytest.raises(EvaluationError, match="model: 'a' there, 'b' now"):
        keep_settings(folder, {"model": "b", "decoding": {"stop": ("x",)}})
    (folder / SETTINGS).unlink()
    (folder / "0.jsonl").touch()
    with pytest.raises(EvaluationError, match="holds no evaluation"):
        keep_settings(folder, {})


def ids(file: Path) -> list[str]:
    return [json.loads(line)["id"] for line in file.read_text().splitlines()]


def test_questions_that_the_endpoint_failed_are_asked_again(tmp_path: Path) -> None:
    inner = tmp_path / "result" / REGISTRY_NAME / "agentic/memory/kv"
    (inner / "memory_snapshot/prereq_checkpoints").mkdir(parents=True)

    def write(name: str, entries: dict[str, str | None]) -> Path:
        path = inner / f"BFCL_v4_{name}_result.json"
        lines = [
            {"id": entry, "result": []} | ({"traceback": trace} if trace else {})
            for entry, trace in entries.items()
        ]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    prereq = write(
        "memory_kv_prereq",
        {
            "memory_kv_prereq_0-customer-0": None,
            "memory_kv_prereq_1-customer-1": CONNECTION_LOST,
            "memory_kv_prereq_2-student-0": None,
        },
    )
    asked = write(
        "memory_kv",
        {
            "memory_kv_0-customer-0": None,
            "memory_kv_1-student-1": TOO_LONG,  # the model's own: it stays, and counts as wrong
            "memory_kv_2-student-2": CONNECTION_LOST,
            "memory_kv_3-student-3": None,
        },
    )
    lost = inner / "memory_snapshot/prereq_checkpoints/memory_kv_prereq_0-customer-0.json"
    kept = inner / "memory_snapshot/student_final.json"
    lost.touch()
    kept.touch()
    faults = official_bfcl.take_out_faults(tmp_path)
    assert sorted(faults) == ["memory_kv_2-student-2", "memory_kv_prereq_1-customer-1"]
    # What was asked of the customer's memory counts on the conversation that was lost.
    assert ids(prereq) == ["memory_kv_prereq_2-student-0"]
    assert ids(asked) == ["memory_kv_1-student-1", "memory_kv_3-student-3"]
    assert kept.exists() and not lost.exists()
    assert official_bfcl.take_out_faults(tmp_path) == {}
    assert official_bfcl.count_results(tmp_path) == 3


def test_only_what_is_the_models_doing_is_judged(tmp_path: Path) -> None:
    file = tmp_path / "result" / REGISTRY_NAME / "agentic/BFCL_v4_web_search_base_result.json"
    file.parent.mkdir(parents=True)

    def searched(said: str) -> dict[str, object]:
        tool = {"role": "tool", "content": json.dumps({"error": said})}
        return {"inference_log": [{"step_0": [tool]}]}

    entries: dict[str, dict[str, object]] = {
        "web_search_base_0": {"traceback": TOO_LONG},
        "web_search_base_1": {"traceback": REFUSED},
        "web_search_base_2": {"traceback": UNREAD},
        "web_search_base_3": searched("Failed to retrieve the search results from server."),
        "web_search_base_4": searched(f"{official_bfcl.SEARCH_FAILED}: Invalid API key"),
        "web_search_base_5": {"traceback": "x\nopenai.UnprocessableEntityError: Error code: 422"},
    }
    file.write_text("".join(json.dumps({"id": n, **e}) + "\n" for n, e in entries.items()))
    faults = official_bfcl.take_out_faults(tmp_path)
    assert ids(file) == [f"web_search_base_{n}" for n in (0, 2, 3)]
    assert "no auto tool choice" in faults["web_search_base_1"]
    assert "SERPAPI_API_KEY" in faults["web_search_base_4"]


SEARCHES: tuple[tuple[list[tuple[int, object]], bool], ...] = (
    ([(200, {"error": "DuckDuckGo hasn't returned any results for this query."})], False),
    ([(400, {"error": "Missing query `q` parameter."})], False),
    ([(401, {"error": "Invalid API key."})], True),
    ([(429, {"error": "Your account has run out of searches."})], True),
    ([(429, {"error": "Too many."}), (200, {"organic_results": []})], False),
    ([(503, {"error": "We couldn't get valid results for this search."})], True),
)
"""What SerpAPI answers to one search after another, and whether it is its failure."""
SEARCH = """
import sys
sys.path.insert(0, sys.argv[1])
import bfcl_endpoint
from bfcl_eval.eval_checker.multi_turn_eval.func_source_code import web_search
web_search.time.sleep = lambda _: None
for at in [sys.argv[2]] * int(sys.argv[3]) + ["http://127.0.0.1:9"]:
    web_search.GoogleSearch.BACKEND = at
    print("found", web_search.WebSearchAPI().search_engine_query("snow"))
"""


@pytest.mark.slow
def test_the_real_programs_search_tells_a_failure_from_an_empty_result(tmp_path: Path) -> None:
    if not PYTHON.exists():
        pytest.skip("no official environment; make it: bash scripts/setup_official.sh bfcl")
    with serving(lambda _: (200, {})) as served:
        served.pages = [reply for replies, _ in SEARCHES for reply in replies]
        endpoint = Endpoint(served.url, "m", None, False, None)
        environment = {**os.environ, **official_bfcl.environment_of(endpoint, tmp_path)}
        environment |= {"SERPAPI_API_KEY": "secret", "NO_PROXY": "127.0.0.1"}
        arguments = [str(official_bfcl.PROGRAM.parent), served.url, str(len(SEARCHES))]
        done = subprocess.run(
            [str(PYTHON), "-c", SEARCH, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
    found = [line for line in done.stdout.splitlines() if line.startswith("found")]
    # The last one is of nobody there.
    failed = [*(is_failure for _, is_failure in SEARCHES), True]
    assert [official_bfcl.SEARCH_FAILED in line for line in found] == failed, found
    assert "secret" not in done.stdout


def test_a_server_on_this_machine_is_not_asked_for_through_a_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "example.org")
    monkeypatch.delenv("NO_PROXY", raising=False)
    code = "import os; print(os.environ['no_proxy'], os.environ['NO_PROXY'])"
    family, log = Family(), tmp_path / "log"
    watch(family, [sys.executable, "-c", code], {}, log, what="it", count=lambda: 0, total=None)
    family.end()
    assert log.read_text().split() == ["example.org,127.0.0.1,localhost"] * 2


def test_results_are_counted_rarely_while_a_program_runs(tmp_path: Path) -> None:
    counts: list[int] = []

    def count() -> int:
        counts.append(1)  # each count reads all result files
        return len(counts)

    family, command = Family(), [sys.executable, "-c", "import time; time.sleep(1.5)"]
    watch(family, command, {}, tmp_path / "log", what="it", count=count, total=None)
    family.end()
    assert len(counts) == 2


def test_all_that_tau2_asks_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin/tau2"
    program.parent.mkdir()
    # It asks whether to go on with a file, and once more if its settings have changed.
    program.write_text('#!/bin/bash\nread -r a && read -r b && [ "$a$b" = yy ]\n')
    program.chmod(0o755)
    monkeypatch.setattr(official_tau2, "ENVIRONMENT", tmp_path)
    endpoint = Endpoint("http://a/v1", "m", None, False, None)
    family = Family()
    official_tau2.run(
        endpoint, tmp_path, user_model="u", trials=1, tasks=1, concurrency=1, family=family
    )
    family.end()


def test_keys_never_reach_a_command_line_or_a_result() -> None:
    endpoint = Endpoint("http://a/v1", "m", "secret", False, None)
    command = official_tau2.command_of(endpoint, Path("out"), "retail")
    assert "secret" not in " ".join(command)
    assert command[command.index("--agent-llm") + 1] == "hosted_vllm/m"
    assert official_tau2.environment_of(endpoint)["HOSTED_VLLM_API_KEY"] == "secret"


def test_a_missing_key_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SERPAPI_API_KEY", raising=False)
    with pytest.raises(EvaluationError, match="SERPAPI_API_KEY"):
        official_bfcl.check_can_run("bfcl_v4_web", CATEGORIES["bfcl_v4_web"])
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(EvaluationError, match="OPENAI_API_KEY"):
        official_tau2.check_can_run(official_tau2.USER_MODEL)
    with pytest.raises(EvaluationError, match="--categories: bfcl_v4_web has no memory_kv"):
        official_bfcl.check_can_run("bfcl_v4_web", ["memory_kv"])


def test_results_that_tau2_wrote_are_read() -> None:
    scores = official_tau2.read_scores(RECORDED / "tau2")
    assert {name: (score.simulations, score.expected) for name, score in scores.items()} == {
        "retail": (2, 2)
    }
    document = json.loads((RECORDED / "tau2/retail.json").read_text())
    rewards = [simulation["reward_info"]["reward"] for simulation in document["simulations"]]
    assert scores["retail"].pass_1 == fmean(rewards)


def test_pass_1_is_the_mean_over_tasks_and_trials(tmp_path: Path) -> None:
    document = json.loads((RECORDED / "tau2/retail.json").read_text())
    one, other = document["simulations"]
    trials = []
    for task, rewards in ((one, (1.0, 0.0)), (other, (1.0, 1.0))):
        for reward in rewards:
            trials.append({**task, "reward_info": {**task["reward_info"], "reward": reward}})
    document["simulations"] = trials
    document["info"]["num_trials"] = 2
    (tmp_path / "telecom.json").write_text(json.dumps(document))
    assert official_tau2.read_scores(tmp_path)["telecom"] == official_tau2.DomainScore(0.75, 4, 4)
    (tmp_path / "retail.json").write_text("{}")
    with pytest.raises(EvaluationError, match="no result file of tau2"):
        official_tau2.read_scores(tmp_path)


def test_a_domain_whose_trials_are_not_all_done_has_no_figure(tmp_path: Path) -> None:
    folder = tmp_path / "tau2"
    keep_settings(folder, {"suite": "tau2", "tasks": None})
    document = json.loads((RECORDED / "tau2/retail.json").read_text())
    (folder / "retail.json").write_text(json.dumps(document))
    assert "retail" in model_figures("SEAL", tmp_path).figures
    document["info"]["num_trials"] = 4  # a result of each task, of the first trial
    (folder / "retail.json").write_text(json.dumps(document))
    row = model_figures("SEAL", tmp_path)
    assert "retail" not in row.figures
    assert "SEAL, tau2: retail: 2 of 8 simulations" in row.notes

"""BFCL V4's agentic suites by the official program: bfcl-eval's generate and evaluate.

In: an endpoint that returns `tool_calls`, a folder. Out: bfcl-eval's own score files in the folder,
and their accuracies. scripts/bfcl_endpoint.py runs the program in .venv-bfcl-official. If the
endpoint or the search engine failed at a question, its result is removed before the judging: the
question is asked again, and never scored.
"""

import functools
import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seal import ROOT
from seal.evaluation.endpoint import Endpoint, is_about_length
from seal.evaluation.faults import EvaluationError
from seal.evaluation.programs import watch
from seal.launch.processes import Family
from seal.records.json_lines import BadLine, json_lines, read_json_lines
from seal.records.whole_file import write_whole

PYTHON = ROOT / ".venv-bfcl-official/bin/python"
PROGRAM = ROOT / "scripts/bfcl_endpoint.py"
CATEGORIES: Mapping[str, tuple[str, ...]] = {
    "bfcl_v4_memory": ("memory_kv", "memory_vector", "memory_rec_sum"),
    "bfcl_v4_web": ("web_search_base", "web_search_no_snippet"),
}
REGISTRY_NAME = "evaluated-model"
"""The model's name in bfcl-eval's table and folders; bfcl-eval would read a "_" as "/"."""
SEARCH_KEY = "SERPAPI_API_KEY"
ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
SEARCH_FAILED = "[evaluation] the search engine failed"
"""Answer of the search tool in scripts/bfcl_endpoint.py then; bfcl-eval's log holds it."""
_ENDPOINT_ERROR = re.compile(r"^openai\.(\w+)(.*)$", re.MULTILINE)


def check_can_run(suite: str, categories: Sequence[str]) -> None:
    """Refuse a suite at once if something that it needs is missing.

    Raises:
        EvaluationError: The program's environment, a key or the embedding model is missing.
    """
    unknown = [name for name in categories if name not in CATEGORIES[suite]]
    if unknown:
        raise EvaluationError(
            f"--categories: {suite} has no {', '.join(unknown)}; it has "
            f"{', '.join(CATEGORIES[suite])}"
        )
    if suite == "bfcl_v4_web" and not os.environ.get(SEARCH_KEY, "").strip():
        raise EvaluationError(
            f"{suite} asks a search engine through serpapi.com, which needs the network and a key: "
            f"set the environment variable {SEARCH_KEY}"
        )
    if not PYTHON.exists():
        raise EvaluationError(
            f"{suite} runs the official bfcl-eval, whose environment {PYTHON.parents[1].name} is "
            "missing; make it: bash scripts/setup_official.sh bfcl"
        )
    if "memory_vector" in categories and not _has_encoder():
        raise EvaluationError(
            f"memory_vector needs {ENCODER} from the Hugging Face hub, which is neither in the "
            "cache (HF_HOME) nor can be reached; or leave it out: --categories "
            "memory_kv,memory_rec_sum"
        )


def _has_encoder() -> bool:
    asked = (
        "import huggingface_hub as hub, sys\n"
        f"found = isinstance(hub.try_to_load_from_cache({ENCODER!r}, 'config.json'), str)\n"
        f"hub.get_hf_file_metadata(hub.hf_hub_url({ENCODER!r}, 'config.json'), timeout=10) "
        "if not found else None"
    )
    command = [str(PYTHON), "-c", asked]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def run(
    endpoint: Endpoint,
    folder: Path,
    categories: Sequence[str],
    *,
    tasks: int | None,
    concurrency: int,
    family: Family,
) -> None:
    """Ask the questions that have no result yet, then judge all.

    bfcl-eval works and leaves its files in the folder. `tasks` are questions of each category, None
    for all; `concurrency` are questions at once. `family` ends the program if we end.

    Raises:
        EvaluationError: The program, the endpoint or the search engine failed.
    """
    environment, log = environment_of(endpoint, folder), folder / "program.log"
    total = plan(endpoint, folder, categories, tasks)
    count = functools.partial(count_results, folder)

    def watched(what: str, name: str, *options: str) -> None:
        command = command_of(name, categories, *options)
        watch(family, command, environment, log, what=what, count=count, total=total)

    asking = ["--temperature", "0", "--num-threads", str(concurrency), "--exclude-state-log"]
    # It asks the questions that have no result yet.
    watched("asking", "generate", *asking, *([] if tasks is None else ["--run-ids"]))
    faults = take_out_faults(folder)
    if faults:
        name, reason = next(iter(faults.items()))
        raise EvaluationError(
            f"{len(faults)} questions failed, {name} by: {reason}; nothing is scored, and the "
            f"same command asks them again ({', '.join([*faults][:5])}; log: {log})"
        )
    watched("judging", "evaluate", *([] if tasks is None else ["--partial-eval"]))


def environment_of(endpoint: Endpoint, folder: Path) -> dict[str, str]:
    """Environment variables that name the program's folder and its model."""
    return {
        "BFCL_PROJECT_ROOT": str(folder.resolve()),
        "OPENAI_BASE_URL": endpoint.base_url,
        "OPENAI_API_KEY": endpoint.api_key or "none",
        "SEAL_REGISTRY_NAME": REGISTRY_NAME,
        "SEAL_SERVED_MODEL": endpoint.model,
        "SEAL_SEARCH_FAILED": SEARCH_FAILED,
    }


def plan(endpoint: Endpoint, folder: Path, categories: Sequence[str], tasks: int | None) -> int:
    """Ask the program for the number of entries, and choose some if only some are wanted.

    Raises:
        EvaluationError: It does not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [str(PYTHON), str(PROGRAM), "plan", ",".join(categories)]
    command += ["--tasks", str(tasks or 0)]
    environment = {**os.environ, **environment_of(endpoint, folder)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise EvaluationError(f"bfcl-eval does not start: {done.stderr.strip()[-2000:]}")
    counts: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return sum(counts.values())


def command_of(name: str, categories: Sequence[str], *options: str) -> list[str]:
    """bfcl-eval's `generate` or `evaluate`."""
    command = [str(PYTHON), str(PROGRAM), name, "--model", REGISTRY_NAME]
    return [*command, "--test-category", ",".join(categories), *options]


def count_results(folder: Path) -> int:
    """Number of entries that have a result."""
    files = (folder / "result" / REGISTRY_NAME).rglob("*_result.json")
    return sum(file.read_bytes().count(b"\n") for file in files)


def take_out_faults(folder: Path) -> dict[str, str]:
    """Remove results that are failures of the endpoint or of the search engine.

    If a conversation that fills a memory is lost, every question about that memory is worthless:
    the results of its category and scenario are removed, too.

    Returns:
        The reason of each failure, by id.
    """
    results = folder / "result" / REGISTRY_NAME
    files = sorted(results.rglob("*_result.json"))
    by_file = {file: _lines(file) for file in files}
    faults = {
        line["id"]: fault for lines in by_file.values() for line in lines if (fault := _fault(line))
    }
    spoilt = {_memory(name) for name in faults if "_prereq_" in name}
    for file, lines in by_file.items():
        kept = [
            line for line in lines if line["id"] not in faults and _memory(line["id"]) not in spoilt
        ]
        if len(kept) < len(lines):
            write_whole(file, json_lines(kept))
    for file in results.glob("agentic/memory/*/memory_snapshot/**/*"):
        # E.g. kv/memory_snapshot/customer_final.json.
        backend = next(part.name for part in file.parents if part.parent.name == "memory")
        if file.is_file() and any(
            category == f"memory_{backend}" and scenario in file.name
            for category, scenario in spoilt
        ):
            file.unlink()
    return faults


def _lines(file: Path) -> list[dict[str, Any]]:
    try:
        return list(read_json_lines(file, lambda _, line: line))
    except BadLine:
        raise EvaluationError(f"{file} is damaged; delete it and run again") from None


def _fault(line: Mapping[str, Any]) -> str | None:
    """Why a question failed, if that was not the model's doing."""
    for error in _ENDPOINT_ERROR.finditer(str(line.get("traceback", ""))):
        # A dialogue that grew too long is the model's own failure.
        if not (error[1] == "BadRequestError" and is_about_length(error[2])):
            return f"the endpoint, {error[0][:300]}"
    if SEARCH_FAILED in json.dumps(line.get("inference_log", "")):
        return f"the search engine; is the key in {SEARCH_KEY} valid, and has it searches left?"
    return None


def _memory(entry_id: str) -> tuple[str, str]:
    """Category and scenario of a memory entry, e.g. memory_kv_prereq_3-customer-3."""
    category, _, place = entry_id.replace("_prereq", "").rpartition("_")
    return category, place.split("-")[1] if "-" in place else ""


def read_scores(folder: Path) -> dict[str, float]:
    """bfcl-eval's accuracies in a folder, as shares from 0 to 1 by category.

    Raises:
        EvaluationError: A score file cannot be read.
    """
    scores = {}
    for file in sorted((folder / "score" / REGISTRY_NAME).rglob("BFCL_v4_*_score.json")):
        category = file.name.removeprefix("BFCL_v4_").removesuffix("_score.json")
        try:
            # A head with the counts, then a line for each entry that failed.
            head = json.loads(file.read_text("utf-8").partition("\n")[0])
            scores[category] = float(head["accuracy"])
        except (ValueError, KeyError, TypeError) as error:
            raise EvaluationError(f"{file} is no score file of bfcl-eval ({error!r})") from None
    return scores

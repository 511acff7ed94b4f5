"""BFCL V4's agentic suites by the official program: bfcl-eval's generate and evaluate.

In: an endpoint that returns `tool_calls`, a folder. Out: bfcl-eval's own score files in the folder,
read into `CategoryScore`s. The program runs in .venv-bfcl-official, by scripts/bfcl_endpoint.py. A
question whose endpoint or search engine failed is taken out of the results before they are judged,
so it is asked again, and never scored.
"""

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seal.evaluation.endpoint import Endpoint, is_about_length
from seal.evaluation.faults import EvaluationError
from seal.evaluation.programs import watch
from seal.launch.processes import Family

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-bfcl-official/bin/python"
PROGRAM = ROOT / "scripts/bfcl_endpoint.py"
CATEGORIES: Mapping[str, tuple[str, ...]] = {
    "bfcl_v4_memory": ("memory_kv", "memory_vector", "memory_rec_sum"),
    "bfcl_v4_web": ("web_search_base", "web_search_no_snippet"),
}
REGISTRY_NAME = "evaluated-model"
"""The model's name in bfcl-eval's table and folders; bfcl-eval takes "_" there for "/"."""
SEARCH_KEY = "SERPAPI_API_KEY"
ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
SEARCH_FAILED = "[evaluation] the search engine failed"
"""What scripts/bfcl_endpoint.py has the tool say then, and so what bfcl-eval's log of it holds."""
_ENDPOINT_ERROR = re.compile(r"^openai\.(\w+)(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class CategoryScore:
    """What bfcl-eval gives one category."""

    accuracy: float
    """Share from 0 to 1."""
    correct: int
    total: int


def check_can_run(suite: str, categories: Sequence[str]) -> None:
    """Say at once what a suite needs and does not have.

    Raises:
        EvaluationError: The program's environment, a key or a model of embeddings is missing.
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
    """Ask what has no result yet, then judge all.

    Args:
        endpoint: The model.
        folder: Where bfcl-eval works and leaves its files.
        categories: Of bfcl-eval.
        tasks: Questions of each; None for all.
        concurrency: Questions at once.
        family: Ends the program if we end.

    Raises:
        EvaluationError: The program failed, or the endpoint or the search engine did.
    """
    environment, log = environment_of(endpoint, folder), folder / "program.log"
    total = plan(endpoint, folder, categories, tasks)
    watch(
        family,
        generate_command(categories, tasks is not None, concurrency),
        environment,
        log,
        what="asking",
        count=lambda: count_results(folder),
        total=total,
    )
    faults = take_out_faults(folder)
    if faults:
        name, reason = next(iter(faults.items()))
        raise EvaluationError(
            f"{len(faults)} questions were failed, {name} by: {reason}; nothing is scored, and the "
            f"same command asks them again ({', '.join([*faults][:5])}; log: {log})"
        )
    watch(
        family,
        evaluate_command(categories, tasks is not None),
        environment,
        log,
        what="judging",
        count=lambda: count_results(folder),
        total=total,
    )


def environment_of(endpoint: Endpoint, folder: Path) -> dict[str, str]:
    """Variables that tell the program where to work and which model to ask."""
    return {
        "BFCL_PROJECT_ROOT": str(folder.resolve()),
        "OPENAI_BASE_URL": endpoint.base_url,
        "OPENAI_API_KEY": endpoint.api_key or "none",
        "SEAL_REGISTRY_NAME": REGISTRY_NAME,
        "SEAL_SERVED_MODEL": endpoint.model,
        "SEAL_SEARCH_FAILED": SEARCH_FAILED,
    }


def plan(endpoint: Endpoint, folder: Path, categories: Sequence[str], tasks: int | None) -> int:
    """Ask the program how many entries there are, and choose some where only some are wanted.

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


def generate_command(categories: Sequence[str], some: bool, threads: int) -> list[str]:
    """bfcl-eval's `generate`: does what has no result yet."""
    command = [str(PYTHON), str(PROGRAM), "generate", "--model", REGISTRY_NAME]
    command += ["--test-category", ",".join(categories), "--temperature", "0"]
    command += ["--num-threads", str(threads), "--exclude-state-log"]
    return [*command, "--run-ids"] if some else command


def evaluate_command(categories: Sequence[str], some: bool) -> list[str]:
    """bfcl-eval's `evaluate`."""
    command = [str(PYTHON), str(PROGRAM), "evaluate", "--model", REGISTRY_NAME]
    command += ["--test-category", ",".join(categories)]
    return [*command, "--partial-eval"] if some else command


def count_results(folder: Path) -> int:
    """Entries that have a result so far."""
    files = (folder / "result" / REGISTRY_NAME).rglob("*_result.json")
    return sum(file.read_bytes().count(b"\n") for file in files)


def take_out_faults(folder: Path) -> dict[str, str]:
    """Remove results that are the endpoint's or the search engine's failures.

    Returns what failed each, by id.

    A conversation that filled a memory and was lost spoils every question that was asked of it:
    those of its category and scenario are removed, too.
    """
    files = sorted((folder / "result" / REGISTRY_NAME).rglob("*_result.json"))
    lines = {file: _lines(file) for file in files}
    faults = {
        line["id"]: fault for found in lines.values() for line in found if (fault := _fault(line))
    }
    spoilt = {_memory(name) for name in faults if "_prereq_" in name}
    for file, found in lines.items():
        kept = [
            line for line in found if line["id"] not in faults and _memory(line["id"]) not in spoilt
        ]
        if len(kept) < len(found):
            text = "".join(json.dumps(line) + "\n" for line in kept)
            part = file.with_suffix(".part")
            part.write_text(text, "utf-8")
            part.replace(file)
    for file in (folder / "result" / REGISTRY_NAME).glob("agentic/memory/*/memory_snapshot/**/*"):
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
        # In bytes: a text may hold characters that splitlines takes for line ends.
        return [json.loads(line) for line in file.read_bytes().splitlines()]
    except ValueError:
        raise EvaluationError(f"{file} is damaged; delete it and run again") from None


def _fault(line: Mapping[str, Any]) -> str | None:
    """What failed a question that is not the model's doing."""
    for error in _ENDPOINT_ERROR.finditer(str(line.get("traceback", ""))):
        # A dialogue that grew too long is the model's own.
        if not (error[1] == "BadRequestError" and is_about_length(error[2])):
            return f"the endpoint, {error[0][:300]}"
    if SEARCH_FAILED in json.dumps(line.get("inference_log", "")):
        return f"the search engine; is the key in {SEARCH_KEY} valid, and has it searches left?"
    return None


def _memory(entry_id: str) -> tuple[str, str]:
    """Category and scenario of a memory entry, e.g. memory_kv_prereq_3-customer-3."""
    category, _, place = entry_id.replace("_prereq", "").rpartition("_")
    return category, place.split("-")[1] if "-" in place else ""


def read_scores(folder: Path) -> dict[str, CategoryScore]:
    """bfcl-eval's scores in a folder, by category.

    Raises:
        EvaluationError: A score file cannot be read.
    """
    scores = {}
    for file in sorted((folder / "score" / REGISTRY_NAME).rglob("BFCL_v4_*_score.json")):
        category = file.name.removeprefix("BFCL_v4_").removesuffix("_score.json")
        try:
            # A head with the counts, then a line for each entry that failed.
            head = json.loads(file.read_text("utf-8").partition("\n")[0])
            scores[category] = CategoryScore(
                float(head["accuracy"]), int(head["correct_count"]), int(head["total_count"])
            )
        except (ValueError, KeyError, TypeError) as error:
            raise EvaluationError(f"{file} is no score file of bfcl-eval ({error!r})") from None
    return scores

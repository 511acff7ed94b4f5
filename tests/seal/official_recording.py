"""Answers to BFCL V4's agentic questions, and what the real `bfcl evaluate` makes of them.

Run as a program, with the official environment made by scripts/setup_official.sh, it writes the
score files in official_results/ anew:

    PYTHONPATH=tests/seal .venv/bin/python tests/seal/official_recording.py
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from seal.evaluation.endpoint import Endpoint
from seal.evaluation.official_bfcl import (
    CATEGORIES,
    PYTHON,
    REGISTRY_NAME,
    command_of,
    environment_of,
)

RECORDED = Path(__file__).parent / "official_results"
ENDPOINT = Endpoint("http://127.0.0.1:9/v1", "m", None, False, None)
RIGHT = {
    "memory_kv": 3,
    "memory_vector": 0,
    "memory_rec_sum": 1,
    "web_search_base": 4,
    "web_search_no_snippet": 2,
}
"""Of ANSWERS in each category."""
ANSWERS = 4


def write_answers(folder: Path) -> None:
    """Result files with so many right answers in each category and the others wrong."""
    data = "import bfcl_eval, pathlib; print(pathlib.Path(bfcl_eval.__file__).parent / 'data')"
    where = subprocess.check_output([str(PYTHON), "-c", data], text=True).strip()
    for category, right in RIGHT.items():
        kind = "memory" if category.startswith("memory") else "web_search"
        lines = (Path(where) / f"possible_answer/BFCL_v4_{kind}.json").read_bytes().splitlines()
        backend = category.removeprefix("memory_")
        inner = f"agentic/memory/{backend}" if kind == "memory" else "agentic"
        target = folder / "result" / REGISTRY_NAME / inner / f"BFCL_v4_{category}_result.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("w") as file:
            for number, line in enumerate(map(json.loads, lines[:ANSWERS])):
                truth = line["ground_truth"][0] if number < right else "I do not know"
                answer = f"{{'answer': '{truth}', 'context': 'asked'}}"
                entry = line["id"].replace(kind, category)
                file.write(json.dumps({"id": entry, "result": [[answer]]}) + "\n")


def judge(folder: Path) -> None:
    """The real command, in a folder of its own."""
    every = [category for suite in CATEGORIES.values() for category in suite]
    environment = {**os.environ, **environment_of(ENDPOINT, folder)}
    command = command_of("evaluate", every, "--partial-eval")
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        write_answers(Path(made))
        judge(Path(made))
        shutil.rmtree(RECORDED / "bfcl", ignore_errors=True)
        # Of the tables only the one with these suites.
        others = shutil.ignore_patterns("data_[!a]*.csv")
        shutil.copytree(Path(made) / "score", RECORDED / "bfcl/score", ignore=others)
    sys.exit(0)

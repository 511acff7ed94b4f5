"""tau2-bench by the official program `tau2`, a domain at a time.

In: an endpoint that returns `tool_calls`, a folder, the model that plays the user. Out: the
program's own result file of each domain, `<domain>.json`, read into a `DomainScore`. The program
runs in .venv-tau2, at v0.2.0.
"""

import functools
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seal import ROOT
from seal.evaluation.endpoint import Endpoint
from seal.evaluation.faults import EvaluationError
from seal.evaluation.programs import watch
from seal.launch.processes import Family

ENVIRONMENT = ROOT / ".venv-tau2"
DOMAINS = ("retail", "airline", "telecom")
USER_MODEL = "openai/gpt-4.1"
"""Default model that plays the user: tau2's own default, with its provider's name."""
ENDPOINT_KEY = "HOSTED_VLLM_API_KEY"
"""Variable with the evaluated endpoint's key; OPENAI_API_KEY is the user simulator's here."""


@dataclass(frozen=True)
class DomainScore:
    """tau2's score of one domain."""

    pass_1: float
    """Share of successful tasks, the mean over trials: tau2's pass^1."""
    simulations: int
    """Simulations with a result."""
    expected: int
    """Simulations of the whole run: tasks times trials."""


def check_can_run(user_model: str) -> None:
    """Refuse the suite at once if something that it needs is missing.

    Raises:
        EvaluationError: The program's environment is missing, or the key of the user's model.
    """
    python = ENVIRONMENT / "bin/python"
    if not python.exists():
        # The most common missing key can be named without the program.
        if user_model == USER_MODEL and not os.environ.get("OPENAI_API_KEY", "").strip():
            raise _no_key(user_model, ["OPENAI_API_KEY"])
        raise EvaluationError(
            f"tau2 runs the official tau2-bench, whose environment {ENVIRONMENT.name} is missing; "
            "make it: bash scripts/setup_official.sh tau2"
        )
    asked = (
        "import json, sys, litellm; print(json.dumps(litellm.validate_environment(sys.argv[1])))"
    )
    command = [str(python), "-c", asked, user_model]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise EvaluationError(f"tau2's litellm does not start: {done.stderr.strip()[-500:]}")
    missing: list[str] = json.loads(done.stdout.splitlines()[-1])["missing_keys"]
    if missing:
        raise _no_key(user_model, missing)


def _no_key(user_model: str, missing: list[str]) -> EvaluationError:
    return EvaluationError(
        f"{user_model} plays tau2's users (--user-llm), which needs the network and a key: set "
        f"the environment variable {' and '.join(missing)}"
    )


def run(
    endpoint: Endpoint,
    folder: Path,
    *,
    user_model: str,
    trials: int,
    tasks: int | None,
    concurrency: int,
    family: Family,
) -> None:
    """Run the simulations that have no result yet, domain by domain; tau2 judges each of them.

    Args:
        endpoint: The model.
        folder: Folder of the result files.
        user_model: The model that plays the users, as litellm names it.
        trials: Simulations of each task.
        tasks: Tasks of each domain; None for all.
        concurrency: Simulations at once.
        family: Ends the program if we end.

    Raises:
        EvaluationError: The program failed, because of the endpoint or the user's model.
    """
    options = ["--user-llm", user_model, "--num-trials", str(trials)]
    options += ["--max-concurrency", str(concurrency)]
    options += ["--num-tasks", str(tasks)] if tasks else []
    for domain in DOMAINS:
        watch(
            family,
            # tau2 asks whether to go on with an existing file, and again if its settings differ
            # from those it writes now. The answer is yes.
            ["bash", "-c", 'yes y | "$0" "$@"', *command_of(endpoint, folder, domain), *options],
            environment_of(endpoint),
            folder / "program.log",
            what=f"tau2, {domain}",
            count=functools.partial(count_results, folder, domain),
            total=None if tasks is None else tasks * trials,
        )


def environment_of(endpoint: Endpoint) -> dict[str, str]:
    """Environment variables that give the program's litellm the evaluated model's address."""
    return {"HOSTED_VLLM_API_BASE": endpoint.base_url, ENDPOINT_KEY: endpoint.api_key or "none"}


def result_file(folder: Path, domain: str) -> Path:
    """The file with a domain's simulations."""
    return folder / f"{domain}.json"


def command_of(endpoint: Endpoint, folder: Path, domain: str) -> list[str]:
    """`tau2 run` of one domain, which runs what the result file does not hold yet."""
    command = [str(ENVIRONMENT / "bin/tau2"), "run", "--domain", domain]
    command += ["--agent-llm", f"hosted_vllm/{endpoint.model}"]
    command += ["--agent-llm-args", json.dumps({"temperature": 0.0})]
    # A relative name would go into tau2's own folder of simulations.
    return [*command, "--save-to", str(result_file(folder, domain).resolve().with_suffix(""))]


def count_results(folder: Path, domain: str) -> int:
    """Number of simulations with a result; 0 while the file is being written."""
    document = _document(result_file(folder, domain))
    return 0 if document is None else len(document["simulations"])


def read_scores(folder: Path) -> dict[str, DomainScore]:
    """tau2's results in a folder, by domain.

    pass^1 is computed as in tau2: the mean over tasks of the share of successful trials. A trial is
    successful if its reward is 1 (within 1e-6).

    Raises:
        EvaluationError: A result file cannot be read.
    """
    scores = {}
    for domain in DOMAINS:
        file = result_file(folder, domain)
        if not file.exists():
            continue
        document = _document(file)
        try:
            if document is None:
                raise ValueError("no JSON")
            successes: dict[str, list[bool]] = {}
            for simulation in document["simulations"]:
                reward = float(simulation["reward_info"]["reward"])
                successes.setdefault(simulation["task_id"], []).append(abs(reward - 1) <= 1e-6)
            shares = [sum(trials) / len(trials) for trials in successes.values()]
            expected = len(document["tasks"]) * int(document["info"]["num_trials"])
        except (ValueError, KeyError, TypeError) as error:
            raise EvaluationError(f"{file} is no result file of tau2 ({error!r})") from None
        if shares:
            scores[domain] = DomainScore(
                sum(shares) / len(shares), sum(map(len, successes.values())), expected
            )
    return scores


def _document(file: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None

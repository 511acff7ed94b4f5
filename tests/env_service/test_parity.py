"""Parity: on recorded responses the service's verdicts are those of the real `bfcl evaluate`.

parity/ holds the responses, in bfcl-eval's own result files, and the verdicts that the real command
gave on them. Made by recording.py, which says how.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from official import Difference, exceptions_of
from recording import (
    CATEGORIES,
    EACH,
    FOLDER,
    OFFICIAL_PYTHON,
    VERDICTS,
    Texts,
    dialogue,
    official_verdicts,
    recorded,
    result_file,
)
from serving import Service

from env_service.environments.bfcl.tasks import load_tasks


def responses(category: str) -> Iterator[tuple[str, Texts]]:
    # In bytes: a text may hold characters that splitlines takes for line ends.
    for line in (FOLDER / result_file(category)).read_bytes().splitlines():
        entry = json.loads(line)
        yield entry["id"], entry["result"]


def verdict(service: Service, task_id: str, turns: Texts) -> bool:
    """What the service says after these texts."""
    service.ok("/create", env_type="bfcl", task_id=task_id, instance_id=task_id)
    for step, text in enumerate(text for turn in turns for text in turn):
        if service.say(task_id, text, step=step)["is_terminated"]:
            break
    # A call in more brackets than the service reads ends its turn there, so texts are left.
    left = sum(map(len, turns)) - step - 1
    task = load_tasks()[task_id]
    assert not left or Difference.DEEP_VALUE in exceptions_of(task, dialogue(task)[1]), task_id
    accuracy = service.ok("/evaluate", instance_id=task_id)["accuracy"]
    service.ok("/release", instance_id=task_id)
    return bool(accuracy == 1.0)


def differing(service: Service, every: int) -> dict[str, bool]:
    """Our verdict on each task where it is not the recorded one."""
    wanted = json.loads(VERDICTS.read_text("utf-8"))
    found = {}
    for category in CATEGORIES:
        for task_id, turns in [*responses(category)][::every]:
            ours = verdict(service, task_id, turns)
            if ours != wanted[task_id]:
                found[task_id] = ours
    return found


def test_sixteen_verdicts_are_the_official_ones(bfcl: Service) -> None:
    assert differing(bfcl, every=EACH // 4) == {}


@pytest.mark.slow
def test_all_two_hundred_verdicts_are_the_official_ones(bfcl: Service) -> None:
    assert differing(bfcl, every=1) == {}


def test_two_hundred_are_recorded_and_many_of_either_verdict() -> None:
    wanted = json.loads(VERDICTS.read_text("utf-8"))
    assert len(wanted) == EACH * len(CATEGORIES) == 200
    for category in CATEGORIES:
        verdicts = [wanted[task_id] for task_id, _ in responses(category)]
        assert len(verdicts) == EACH
        assert EACH // 5 < sum(verdicts) < EACH * 4 // 5


def test_what_is_recorded_is_what_the_seed_gives() -> None:
    for category in CATEGORIES:
        made = {line["id"]: line["result"] for line in recorded(category)}
        assert made == dict(responses(category))


@pytest.mark.slow
def test_the_recorded_verdicts_are_those_of_the_real_command(tmp_path: Path) -> None:
    if not OFFICIAL_PYTHON.exists():
        pytest.skip("no official environment; make it: bash scripts/setup_official.sh bfcl")
    assert official_verdicts(FOLDER, tmp_path) == json.loads(VERDICTS.read_text("utf-8"))

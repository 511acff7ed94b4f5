"""The log that nobody reads: requests are answered, the service ends, lost lines are counted."""

import json
import logging
import os
import time

import httpx
import pytest
from serving import running

from env_service import log
from env_service.log import StandardError, log_to_stderr


def test_lines_are_written_in_order_with_their_fields(
    capfd: pytest.CaptureFixture[str], root_logger_as_it_was: object
) -> None:
    handler = log_to_stderr("INFO")
    for number in range(100):
        logging.getLogger("here").info("done", extra={"number": number, "text": "\ud800"})
    handler.flush()
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [line["number"] for line in lines] == list(range(100))
    assert lines[0]["logger"] == "here" and lines[0]["level"] == "INFO"


def test_lines_that_nobody_reads_are_dropped_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, write = os.pipe()
    monkeypatch.setattr(log, "_STDERR", write)
    monkeypatch.setattr(log, "MOST_WAITING", 10)
    monkeypatch.setattr(log, "LAST_LINES_S", 0.1)
    dropped: list[None] = []
    handler = StandardError(on_drop=lambda: dropped.append(None))
    record = logging.LogRecord("here", logging.INFO, "", 0, "x" * 9_999, None, None)
    for _ in range(30):
        handler.emit(record)
    # 65,536 bytes are in the pipe, one line is being written, ten wait.
    started = time.monotonic()
    handler.flush()
    assert time.monotonic() - started < 5
    assert 12 <= len(dropped) <= 20
    said = b""
    while len(said) < 10_000 * (30 - len(dropped)):
        said += os.read(read, 1 << 20)
    handler.flush()
    assert said == b"x" * 9_999 + b"\n" + said[10_000:] and len(said) == 10_000 * (
        30 - len(dropped)
    )
    os.close(read)


def test_a_service_whose_log_nobody_reads_answers_and_ends() -> None:
    with running("--log-level", "DEBUG") as (service, url), httpx.Client(base_url=url) as client:
        # 64 KiB fit into the pipe: 300 lines.
        for number in range(400):
            body = {"env_type": "toy", "task_id": "toy_lamp", "instance_id": str(number)}
            assert client.post("/create", json=body).status_code == 200
            assert client.post("/release", json={"instance_id": str(number)}).status_code == 200
        assert client.get("/healthz").status_code == 200
        assert "env_service_log_lines_dropped_total" in client.get("/metrics").text
        service.terminate()
        assert service.wait(timeout=20) == 0

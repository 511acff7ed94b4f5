import io

from rich.console import Console

from seal.launch.check.finding import Finding, error, ok, print_findings, warning


def shown(*findings: Finding) -> str:
    file = io.StringIO()
    print_findings(Console(file=file, width=60), findings)
    return file.getvalue()


def test_a_line_for_each_finding_and_a_verdict() -> None:
    lines = shown(ok("GPUs", "4 of 4"), warning("disk", "little [free]")).splitlines()
    assert lines[1].split() == ["GPUs", "ok", "4", "of", "4"]
    # What looks like markup is text.
    assert "little [free]" in lines[2]
    assert lines[-1] == "this run can start (1 ok, 1 warning, 0 error)"


def test_a_long_key_is_broken_and_not_cut() -> None:
    key = "transfer_queue.backend.SimpleStorage.num_data_storage_units=1"
    assert key in "".join(shown(error("processors", f"set {key}")).split())


def test_an_error_decides() -> None:
    assert shown(ok("a", "b"), error("c", "d")).endswith(
        "this run cannot start (1 ok, 0 warning, 1 error)\n"
    )

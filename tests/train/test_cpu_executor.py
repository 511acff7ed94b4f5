"""vLLM's executor for the CPU, up to the point where vLLM's own would load the model."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.v1.executor.uniproc_executor import UniProcExecutor

from seal.train.cpu.executor import CpuExecutor


@pytest.fixture(autouse=True)
def same_threads_after() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def executor(processes: int, threads: int) -> CpuExecutor:
    made: Any = CpuExecutor.__new__(CpuExecutor)
    made.parallel_config = SimpleNamespace(world_size=processes)
    made.vllm_config = SimpleNamespace(additional_config={"threads": threads})
    made._init_executor()
    return made  # type: ignore[no-any-return]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_recipes_threads_are_set_before_the_model_loads(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    monkeypatch.setattr(
        UniProcExecutor, "_init_executor", lambda _: found.append(torch.get_num_threads())
    )
    executor(1, threads)
    assert found == [threads]


def test_several_processes_are_refused() -> None:
    with pytest.raises(ValueError, match="set tensor_model_parallel_size"):
        executor(2, 1)

"""verl, imported before the tests do; a process group of one."""

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.distributed

with warnings.catch_warnings():
    # What it warns of while it is imported is not our affair.
    warnings.simplefilter("ignore")
    import verl.trainer.ppo.v1  # noqa: F401


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[None]:
    """A process group of this process alone."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()

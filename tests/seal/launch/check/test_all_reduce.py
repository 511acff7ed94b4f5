"""The all-reduce of `launcher.py --check`, with Gloo in the place of NCCL."""

import pytest
import torch.multiprocessing as mp

from seal.launch.check import all_reduce


@pytest.mark.slow
def test_two_ranks_add_up() -> None:
    assert all_reduce.all_reduce(2, "cpu") > 0.0


@pytest.mark.slow
def test_a_rank_that_fails_is_an_error() -> None:
    with pytest.raises(mp.ProcessRaisedException):
        all_reduce.all_reduce(1, "nothing_of_this_name")

"""The platform "cpu", where it does something."""

import psutil

from seal.train.cpu.platform import CpuPlatform

BLOCK_BYTES = 64 * 1024
BLOCKS = 4000


def resident() -> int:
    return int(psutil.Process().memory_info().rss)


def test_an_emptied_cache_gives_freed_memory_back() -> None:
    blocks = [b"x" * BLOCK_BYTES for _ in range(BLOCKS)]
    full = resident()
    # A block in use at the end of the heap: the C library cannot shrink it.
    last = blocks.pop()
    blocks.clear()
    CpuPlatform().device_module.empty_cache()
    assert full - resident() > BLOCK_BYTES * BLOCKS / 2
    assert len(last) == BLOCK_BYTES

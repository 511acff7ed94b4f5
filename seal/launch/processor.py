"""What the processor multiplies fast, for runs without an accelerator.

Out: the floating-point type to compute in. bfloat16 is twice as fast as float32 on a processor with
instructions for it (AVX512-BF16 or AMX) and eighty times slower on one without AVX-512. Called by
recipes, as the resolver `cpu_dtype`, and by scripts/warm_up.py.
"""

import functools
from pathlib import Path

FLAGS = frozenset({"avx512_bf16", "amx_bf16"})
_INFORMATION = Path("/proc/cpuinfo")


@functools.cache
def cpu_dtype() -> str:
    """The type to compute in on this machine: "bfloat16" or "float32"."""
    return dtype_of(_INFORMATION.read_text("utf-8") if _INFORMATION.is_file() else "")


def dtype_of(information: str) -> str:
    r"""The same for the text of a /proc/cpuinfo.

    >>> dtype_of("flags\t\t: fpu avx512f avx512_bf16"), dtype_of("flags\t\t: fpu avx2")
    ('bfloat16', 'float32')
    """
    lines = (line.partition(":") for line in information.splitlines())
    flags = {flag for name, _, said in lines if name.strip() == "flags" for flag in said.split()}
    return "bfloat16" if flags & FLAGS else "float32"

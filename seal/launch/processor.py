"""The processor of this machine: its name, and the fast floating-point type on it.

bfloat16 is twice as fast as float32 on a processor with instructions for it (AVX512-BF16 or AMX).
On a processor without AVX-512 it is eighty times slower. Recipes use `cpu_dtype` as a resolver.
"""

import functools
from pathlib import Path

FLOAT32, BFLOAT16 = "float32", "bfloat16"
FLAGS = frozenset({"avx512_bf16", "amx_bf16"})
"""Names of the instructions for bfloat16 in /proc/cpuinfo."""
_INFORMATION = Path("/proc/cpuinfo")


def model_name() -> str:
    """Name of the processor, e.g. "AMD EPYC 9R14"; "" if the system does not tell it."""
    return next(iter(_values("model name", _information())), "")


@functools.cache
def cpu_dtype() -> str:
    """The type to compute in on this machine: "bfloat16" or "float32"."""
    return dtype_of(_information())


def dtype_of(information: str) -> str:
    r"""The type to compute in, by the text of a /proc/cpuinfo.

    >>> dtype_of("flags\t\t: fpu avx512f avx512_bf16"), dtype_of("flags\t\t: fpu avx2")
    ('bfloat16', 'float32')
    """
    flags = {flag for value in _values("flags", information) for flag in value.split()}
    return BFLOAT16 if flags & FLAGS else FLOAT32


def _information() -> str:
    return _INFORMATION.read_text("utf-8") if _INFORMATION.is_file() else ""


def _values(field: str, information: str) -> list[str]:
    lines = (line.partition(":") for line in information.splitlines())
    return [value.strip() for name, _, value in lines if name.strip() == field]

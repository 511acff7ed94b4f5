"""Makes vLLM take this machine for one with four H100, as far as its configuration goes."""

import vllm.platforms
from vllm.platforms.cuda import NonNvmlCudaPlatform
from vllm.platforms.interface import DeviceCapability


class FourH100(NonNvmlCudaPlatform):
    """What vLLM asks of a GPU while it reads its settings."""

    @classmethod
    def get_device_capability(cls, device_id: int = 0) -> DeviceCapability:
        return DeviceCapability(9, 0)

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        return "NVIDIA H100 80GB HBM3"

    @classmethod
    def get_device_uuid(cls, device_id: int = 0) -> str:
        return f"GPU-{device_id}"

    @classmethod
    def get_device_total_memory(cls, device_id: int = 0) -> int:
        return 80 * 1024**3

    @classmethod
    def is_fully_connected(cls, physical_device_ids: list[int]) -> bool:
        return True

    @classmethod
    def device_count(cls) -> int:
        return 4

    @classmethod
    def num_compute_units(cls, device_id: int = 0) -> int:
        return 132


# Modules of vLLM take their platform when they are imported, so a fixture would come too late.
vllm.platforms._current_platform = FourH100()

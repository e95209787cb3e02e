"""GPUs that are not there: physics, sensor, workloads, and an NVML that shows them.

A training program that runs under ``joulewise sim`` loads one of them by::

    joulewise.simulate.gpu(0).step("resnet50", batch_size=128)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from joulewise.simulate.client import available, gpu

__all__ = ["available", "gpu"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from joulewise.simulate import client

        return getattr(client, name)
    raise AttributeError(f"module 'joulewise.simulate' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

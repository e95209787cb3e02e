"""Simulated GPUs: physics, sensor, workloads, and an NVML library that shows them.

A training program that runs under ``joulewise sim`` puts load on a GPU by::

    joulewise.simulate.gpu(0).step("resnet50", batch_size=128)

- ``model``: data classes; ``boards``, ``workloads``: the boards and trainings there are
- ``published_caps``, ``recorded_workload``: the published measurements, and a workload fitted to
  recorded runs
- ``physics/``: power, time, clocks and heat of a board
- ``timeline``, ``sensor``: what a board did, and what NVML would show of it
- ``virtual``: a whole training in virtual time
- ``realtime/``: GPUs in real time around a command (``joulewise sim``); ``client``: their load
- ``nvml/``: the simulated ``libnvidia-ml.so.1`` and ``nvidia-smi``
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

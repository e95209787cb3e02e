"""Measure the energy of deep-learning training, and find settings that need less.

The names in ``__all__`` are the public interface. Each is imported at its first use, because
``import joulewise`` stands in people's training scripts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from joulewise.data import Unavailable
    from joulewise.devices import Device, Discovery, discover
    from joulewise.errors import JoulewiseError
    from joulewise.optimise.live.tuned_measurement import TunedMeasurement, tune
    from joulewise.session.measure import Measurement, measure
    from joulewise.session.spans import log, span

__all__ = [
    "Device",
    "Discovery",
    "JoulewiseError",
    "Measurement",
    "TunedMeasurement",
    "Unavailable",
    "__version__",
    "callbacks",
    "control",
    "discover",
    "log",
    "measure",
    "span",
    "tune",
]

_MODULES = {
    "Device": "joulewise.devices",
    "Discovery": "joulewise.devices",
    "discover": "joulewise.devices",
    "JoulewiseError": "joulewise.errors",
    "Measurement": "joulewise.session.measure",
    "TunedMeasurement": "joulewise.optimise.live.tuned_measurement",
    "log": "joulewise.session.spans",
    "measure": "joulewise.session.measure",
    "span": "joulewise.session.spans",
    "tune": "joulewise.optimise.live.tuned_measurement",
    "Unavailable": "joulewise.data",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "__version__":
        from importlib.metadata import version

        return version("joulewise")
    if name == "control":
        return import_module("joulewise.control")
    if name == "callbacks":
        return import_module("joulewise.session.callbacks")
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'joulewise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

"""What deep-learning training costs in joules, and the settings that cost fewer.

The names in ``__all__`` are the public interface. Each is imported at its first use, because
``import joulewise`` stands in people's training scripts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from joulewise.data import Unavailable
    from joulewise.devices import Device, Discovery, discover
    from joulewise.errors import JoulewiseError
    from joulewise.session.measure import Measurement, measure
    from joulewise.session.spans import span

__all__ = [
    "Device",
    "Discovery",
    "JoulewiseError",
    "Measurement",
    "Unavailable",
    "__version__",
    "control",
    "discover",
    "measure",
    "span",
]

_MODULES = {
    "Device": "joulewise.devices",
    "Discovery": "joulewise.devices",
    "discover": "joulewise.devices",
    "JoulewiseError": "joulewise.errors",
    "Measurement": "joulewise.session.measure",
    "measure": "joulewise.session.measure",
    "span": "joulewise.session.spans",
    "Unavailable": "joulewise.data",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "__version__":
        from importlib.metadata import version

        return version("joulewise")
    if name == "control":
        return import_module("joulewise.control")
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'joulewise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

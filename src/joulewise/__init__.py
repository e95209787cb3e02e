"""What deep-learning training costs in joules, and the settings that cost fewer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from joulewise.data import Unavailable
    from joulewise.devices import Device, Discovery, discover
    from joulewise.errors import JoulewiseError

__all__ = ["Device", "Discovery", "JoulewiseError", "Unavailable", "__version__", "discover"]

_HOME = {
    "Device": "joulewise.devices",
    "Discovery": "joulewise.devices",
    "discover": "joulewise.devices",
    "JoulewiseError": "joulewise.errors",
    "Unavailable": "joulewise.data",
}


def __getattr__(name: str) -> Any:
    # Loaded at first use: `import joulewise` sits in people's training scripts.
    from importlib import import_module

    if name == "__version__":
        from importlib.metadata import version

        return version("joulewise")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'joulewise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

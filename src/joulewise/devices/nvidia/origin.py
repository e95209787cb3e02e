"""Whether NVML's library is a real driver's or joulewise's simulated one, and what it permits."""

from __future__ import annotations

from typing import Final

import pynvml

from joulewise.data import Source, Unavailable
from joulewise.devices.ranges import by_root_or_the_service, for_root_only

SIMULATED_SYMBOL: Final = "joulewise_simulated"
"""Exported by the simulated ``libnvidia-ml.so.1`` (simulate/nvml/shim) and by no other."""
_PERMISSION_SYMBOL: Final = "joulewise_permits_setting"
"""A function of the simulated library that says whether this process may set limits and clocks."""


def reading_source() -> Source:
    """The source of every reading that nvidia-ml-py takes in this process.

    The library itself is asked, not the environment: a variable may be set while the real
    library is loaded, and the other way round.
    """
    simulated = hasattr(pynvml.nvmlLib, SIMULATED_SYMBOL)
    return Source.SIMULATED if simulated else Source.MEASURED


def setting_permission() -> bool | Unavailable:
    """True where the driver lets this process set limits and clocks, or why it does not.

    The simulated driver is asked. A real one cannot be asked without setting something, so there
    root counts as permitted.
    """
    permits_setting = getattr(pynvml.nvmlLib, _PERMISSION_SYMBOL, None)
    if permits_setting is None:
        return for_root_only()
    if permits_setting():
        return True
    return Unavailable(
        "the simulated driver lets only root turn it",
        f"start the simulation with `joulewise sim --as-root …`, or {by_root_or_the_service()}",
    )

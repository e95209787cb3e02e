"""Whether NVML's readings come from a GPU or from joulewise's simulated driver library."""

from __future__ import annotations

from typing import Final

import pynvml

from joulewise.data import Source

SIMULATED_SYMBOL: Final = "joulewise_simulated"
"""Exported by the simulated ``libnvidia-ml.so.1`` (simulate/nvml/shim) and by no other."""


def reading_source() -> Source:
    """The source of every reading that nvidia-ml-py takes in this process.

    The library itself is asked, not the environment: a variable may be set while the real
    library is loaded, and the other way round.
    """
    simulated = hasattr(pynvml.nvmlLib, SIMULATED_SYMBOL)
    return Source.SIMULATED if simulated else Source.MEASURED

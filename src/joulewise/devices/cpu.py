"""The CPUs of this machine: measured by RAPL where it can be read, else modelled."""

from __future__ import annotations

from joulewise.data import Unavailable
from joulewise.devices import cpu_model, rapl
from joulewise.devices.options import Options
from joulewise.devices.protocol import Device


def find(options: Options) -> list[Device] | Unavailable:
    """Packages, the DRAM that is measured beside them, and the platform around them."""
    found = rapl.find(options) or cpu_model.find(options)
    return found if isinstance(found, Unavailable) else [*found]

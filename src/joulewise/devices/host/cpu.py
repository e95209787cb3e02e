"""The CPUs of this machine: measured by RAPL or a Grace's power meter, else modelled."""

from __future__ import annotations

from joulewise.data import Unavailable
from joulewise.devices.device import Device, Options
from joulewise.devices.host import cpu_model, grace, rapl


def find(options: Options) -> list[Device] | Unavailable:
    """Packages, the DRAM that is measured beside them, and the platform around them."""
    measured: list[Device] = [*(rapl.find(options) or grace.find(options))]
    if measured:
        return measured
    modelled = cpu_model.find(options)
    return modelled if isinstance(modelled, Unavailable) else [*modelled]

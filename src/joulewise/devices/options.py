"""What the person or the environment says about the machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Options:
    """Where to look, and what to take for what cannot be read.

    ``powercap`` is Linux's folder of energy counters; ``$JOULEWISE_POWERCAP`` names another, such
    as a simulated one. ``cpu_tdp_w`` overrides the table behind the modelled CPU power.
    """

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    cpu_tdp_w: float | None = None

    @property
    def powercap(self) -> Path:
        return Path(self.environ.get("JOULEWISE_POWERCAP", "/sys/class/powercap"))

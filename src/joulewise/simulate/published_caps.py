"""The published measurements under power caps, and their authors' conclusions.

Krzywaniak, Czarnul, Proficz: see ``workloads/README.md``. The metrics are energy (``min_e``),
energy-delay product (``min_edp``) and energy-delay sum (``min_eds_K``), each minimised over caps.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

GPUS: Final = {"quadro6000": "rtx6000", "v100": "v100"}


@dataclass(frozen=True)
class PublishedRow:
    """The cap that minimises a metric for a network on a board, and a training's cost there."""

    board: str
    network: str
    metric: str
    cap_w: float
    time_s: float
    energy_j: float


def read_table(path: Path | None = None) -> tuple[PublishedRow, ...]:
    """Every row of the table in ``path``, by default the project's own copy."""
    own = resources.files("joulewise.simulate") / "workloads" / "power-cap-table.csv"
    return tuple(
        PublishedRow(
            GPUS[row["gpu"]],
            row["network"],
            row["metric"],
            float(row["cap_w"]),
            float(row["time_s"]),
            1e3 * float(row["energy_kj"]),
        )
        for row in csv.DictReader((path or own).read_text("utf-8").splitlines())
    )

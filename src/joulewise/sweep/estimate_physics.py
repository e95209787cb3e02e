"""What runs on a simulated board take, from its physics alone: no noise, no settling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from joulewise.data.sweeps import POWER_LIMIT, SM_CLOCK, Setting
from joulewise.sweep.asked import Simulated
from joulewise.sweep.estimate import Amount, Basis
from joulewise.sweep.space import Space

_Alike = tuple[float | None, tuple[tuple[str, str], ...]]
"""An SM clock, and what the workload is given: the physics takes many limits at once."""


def from_physics(simulated: Simulated, space: Space, store: Path) -> Basis:
    import numpy as np

    from joulewise.simulate.boards import load_board
    from joulewise.simulate.model import Knobs
    from joulewise.simulate.physics import run
    from joulewise.sweep.workload import load

    board = load_board(simulated.gpu)
    alike: dict[_Alike, list[Setting]] = {}
    for setting in space.points:
        key = setting.knobs.get(SM_CLOCK), tuple(setting.words.items())
        alike.setdefault(key, []).append(setting)
    amounts = {}
    for (clock_mhz, words), settings in alike.items():
        workload = load(simulated, dict(words), board, store)
        limits_w: Any = np.array(
            [setting.knobs.get(POWER_LIMIT) or board.limits.default_w for setting in settings]
        )
        lock = None if clock_mhz is None else (clock_mhz, clock_mhz)
        time_s, energy_j = run(board, workload, Knobs(limits_w, lock))
        for setting, each_s, each_j in zip(settings, time_s, energy_j, strict=True):
            amounts[setting] = Amount(float(each_s), float(each_j))
    source = f"in virtual time, by the physics of the simulated {simulated.gpu}"
    return Basis(amounts, source, "the GPU")

"""Runs in progress, followed for as long as somebody looks at them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from joulewise.record.store import RECORDING
from joulewise.report.figures import energy, watts
from joulewise.report.watch import RunNow, RunWatch
from joulewise.report.watch_device import WINDOW_S
from joulewise.report.watch_words import cells, foretold, standing

_FRESH_S: Final = 0.5
_FORGOTTEN_S: Final = 60.0


class LiveRuns:
    """However many pages show a run, it is looked at twice a second at most."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._watched: dict[Path, tuple[RunWatch, RunNow, float]] = {}

    def look(self, run: Path) -> RunNow:
        with self._lock:
            now_s = self._clock_s()
            self._watched = {
                path: kept
                for path, kept in self._watched.items()
                if now_s - kept[2] < _FORGOTTEN_S and path.is_dir()
            }
            watch, now, looked_s = self._watched.get(run, (RunWatch(run), None, -_FRESH_S))
            if now is None or now_s - looked_s >= _FRESH_S:
                now, looked_s = watch.look(), now_s
            self._watched[run] = watch, now, looked_s
            return now


def as_json(now: RunNow, after_s: int) -> dict[str, Any]:
    """Texts by the elements that show them, and the seconds of power from ``after_s`` on."""
    return {
        "state": now.state,
        "is_live": now.state == RECORDING,
        "window_s": WINDOW_S,
        "last_s": last_s(now),
        "text": texts(now),
        "devices": [
            {
                "key": device.key,
                "limit_w": device.limit_w,
                "seconds": [
                    [second.at_s, *(round(value, 1) for value in second[1:])]
                    for second in device.course
                    if second.at_s >= after_s
                ],
            }
            for device in now.devices
        ],
    }


def texts(now: RunNow) -> dict[str, str]:
    """As the page first has it, and as its script then writes it."""
    told = {
        "verdict": standing(now),
        "foretold": "\n".join(foretold(now)),
    }
    for number, device in enumerate(now.devices):
        spent_j = now.energies.get(device.key)
        told |= {
            f"power-{number}": watts(device.power_w),
            f"limit-{number}": watts(device.limit_w),
            f"energy-{number}": energy(spent_j) if spent_j else "-",
            f"source-{number}": spent_j.source.value if spent_j else "-",
        }
        names = ("load", "clock", "temperature")
        told |= {f"{n}-{number}": cell for n, cell in zip(names, cells(device), strict=True)}
    return told


def last_s(now: RunNow) -> int:
    return max((device.course[-1].at_s for device in now.devices if device.course), default=0)

"""How well ``joulewise calibrate`` finds what a sensor does, on boards that nobody has seen.

    python benchmarks/calibrate.py [--boards 200] [--real 1] [--seconds 30]

Each board is drawn: period, window and lag up to 20 % off its generation's, a hidden gain, phases
of its own. ``--boards`` of each type are calibrated in virtual time, with one poll in a hundred
late; ``--real`` of each type in real time, as ``joulewise sim -- joulewise calibrate``. Fails where
a period or a window is off by more than 10 %.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from helpers.verdict import Verdicts
from helpers.virtual_bench import VirtualBench

from joulewise.calibrate.board import SENSORS, Calibration, calibrate
from joulewise.data import DeviceInfo, Kind, Quantity, Unavailable
from joulewise.simulate.boards import BOARDS, load_board, make_unit
from joulewise.simulate.model import BoardUnit, SensorSpec

GOAL = 0.10
SPREAD = 0.20
LATE = 0.01


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--boards", type=int, default=200, help="of each type, in virtual time")
    parser.add_argument("--real", type=int, default=1, help="of each type, in real time")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--gpu", action="append", help="this type only; may be repeated")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    verdicts = Verdicts()
    print(f"off by, of {arguments.boards} boards a type in virtual time (worst / 95 %)")
    print(f"{'board':10} {'reading':16} {'period':>16} {'window':>16} {'lag':>18} {'covered':>16}")
    for key in arguments.gpu or BOARDS:
        rows: dict[Quantity, list[Row]] = {}
        lost = 0
        for seed in range(arguments.seed, arguments.seed + arguments.boards):
            unit = drawn_unit(key, seed)
            for quantity, row in compare(unit, virtual(unit, arguments.seconds)):
                lost += row is None
                if row is not None:
                    rows.setdefault(quantity, []).append(row)
        for quantity, some in rows.items():
            show(key, quantity, some)
            for figure in ("period", "window"):
                worst = max(abs(getattr(row, figure)) for row in some)
                verdicts.at_most(f"{key} {quantity.value} {figure}, worst", worst, GOAL)
        verdicts.at_most(f"{key} not told", lost, 0, percent=False)
    for key in arguments.gpu or BOARDS:
        for seed in range(arguments.real):
            worst = real(key, arguments.seed + seed, arguments.seconds)
            verdicts.at_most(f"{key} in real time, worst of period and window", worst, GOAL)
    verdicts.show()
    return 0 if verdicts.all_met else 1


@dataclass(frozen=True)
class Row:
    """Relative errors of period and window, the lag's in seconds, and which were foretold."""

    period: float
    window: float
    lag_s: float
    window_covered: bool
    lag_covered: bool


def drawn_unit(key: str, seed: int) -> BoardUnit:
    """A board whose sensor differs from what the tables say."""
    draw = random.Random(f"{key} {seed} calibrate")
    board = load_board(key)

    def off(value: float) -> float:
        return value * draw.uniform(1 - SPREAD, 1 + SPREAD)

    sensor = board.sensor
    period_s = off(sensor.period_s)
    drawn = replace(
        sensor,
        period_s=period_s,
        window_s=off(sensor.window_s),
        lag_s=off(sensor.lag_s),
        average_window_s=off(sensor.average_window_s),
        counter_period_s=period_s,
    )
    return make_unit(replace(board, sensor=drawn), seed)


def virtual(unit: BoardUnit, seconds: float) -> Calibration:
    info = DeviceInfo("gpu0", Kind.GPU, unit.board.name, "GPU-0", "nvidia", "0")
    return calibrate(info, {}, VirtualBench(unit, late=LATE), seconds, seed=unit.seed)


def compare(unit: BoardUnit, found: Calibration) -> Iterator[tuple[Quantity, Row | None]]:
    sensor = unit.board.sensor
    for quantity, timing in found.sensors.items():
        if isinstance(timing, Unavailable):
            print(f"  {unit.board.key} {unit.seed} {quantity.value}: {timing.reason}")
            yield quantity, None
            continue
        period, window, lag = timing.update_period_s, timing.window_s, timing.lag_s
        assert period is not None
        assert window is not None
        assert lag is not None
        window_s = true_window_s(sensor, quantity)
        yield (
            quantity,
            Row(
                period.value / sensor.period_s - 1,
                window.value / window_s - 1,
                lag.value - sensor.lag_s,
                abs(window.value - window_s) <= window.error,
                abs(lag.value - sensor.lag_s) <= lag.error,
            ),
        )


def true_window_s(sensor: SensorSpec, quantity: Quantity) -> float:
    averaged = quantity is Quantity.POWER and sensor.plain_is_average
    return sensor.average_window_s if averaged else sensor.window_s


def show(key: str, quantity: Quantity, rows: list[Row]) -> None:
    def tails(values: list[float], unit: str, factor: float) -> str:
        off = np.abs(values) * factor
        return f"{off.max():.2g} / {np.quantile(off, 0.95):.2g} {unit}"

    covered = np.mean([[row.window_covered, row.lag_covered] for row in rows], axis=0)
    print(
        f"{key:10} {quantity.value:16} {tails([row.period for row in rows], '%', 100):>16} "
        f"{tails([row.window for row in rows], '%', 100):>16} "
        f"{tails([row.lag_s for row in rows], 'ms', 1e3):>18} "
        f"{covered[0]:>7.1%}, {covered[1]:.1%}"
    )


def real(key: str, seed: int, seconds: float) -> float:
    """The shipped board behind NVML, at its true speed."""
    sensor = load_board(key).sensor
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        joulewise = [sys.executable, "-m", "joulewise"]
        sim = ["sim", "--gpu", key, "--seed", str(seed), "--"]
        calibrating = ["calibrate", "--seconds", str(seconds), "--json", str(path)]
        subprocess.run(
            [*joulewise, *sim, *joulewise, *calibrating],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        (found,) = json.loads(path.read_text())["gpus"]
    off = []
    for quantity in SENSORS:
        payload = found["sensors"].get(quantity.value)
        if payload is not None:
            off += [
                payload["update_period_s"]["value"] / sensor.period_s - 1,
                payload["window_s"]["value"] / true_window_s(sensor, quantity) - 1,
            ]
    return max(map(abs, off), default=float("inf"))


if __name__ == "__main__":
    sys.exit(main())

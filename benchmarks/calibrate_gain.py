"""How well a wall meter tells a board's gain, on boards and power supplies that nobody has seen.

    python benchmarks/calibrate_gain.py [--boards 40]

Each node is drawn: the board's gain (2.5 %), its sensor's timing, the supply's efficiency (as
stated, within its error), what the rest draws and how it drifts, and a meter with a clock of its
own. Fails where fewer than 93 % of the gains lie within their stated errors.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from calibrate import drawn_unit
from helpers.verdict import Verdicts
from helpers.virtual_bench import Bursts, VirtualBench

from joulewise.calibrate.bench import Burst
from joulewise.calibrate.gain import WallMeter, gain_from_waves
from joulewise.data import Unavailable
from joulewise.record.sensor_profiles import CalibratedValue
from joulewise.simulate.boards import BOARDS
from joulewise.units import NS_PER_S

SUPPLY = CalibratedValue(0.94, 0.01)
GAIN_SIGMA = 0.025
COVERED = 0.93


@dataclass(frozen=True)
class MeteredBench(VirtualBench):
    """A board in a node with a meter, which writes its log while the board is loaded."""

    log: Path = Path()

    def play(self, bursts: Sequence[Burst], kind: str) -> Bursts:
        played = super().play(bursts, kind)
        draw = np.random.default_rng(self.unit.seed)
        efficiency = draw.normal(SUPPLY.value, SUPPLY.error / 1.96)
        rest_w, drift_w = draw.uniform(80, 600), draw.normal(0, 5)
        ahead_s, average_s = draw.uniform(-20, 20), draw.uniform(0.3, 2)
        start_s, end_s = played.timeline.start_ns / NS_PER_S, played.timeline.end_ns / NS_PER_S
        t_s = np.arange(start_s + 2, end_s, 1.0)
        used_j = played.timeline.energy_at(np.rint(t_s * NS_PER_S).astype(np.int64))
        used_j -= played.timeline.energy_at(np.rint((t_s - average_s) * NS_PER_S).astype(np.int64))
        node_w = used_j / average_s + rest_w + drift_w * (t_s - start_s) / (end_s - start_s)
        power_w = node_w / efficiency + draw.normal(0, 1.0, t_s.size)
        rows = [f"{t + ahead_s + 100:.3f},{w:.1f}" for t, w in zip(t_s, power_w, strict=True)]
        self.log.write_text("time,power_w\n" + "\n".join(rows) + "\n")
        return shifted(played, 100 * NS_PER_S)


def shifted(played: Bursts, by_ns: int) -> Bursts:
    """Later on the clock, so that no time of the log is negative."""
    pieces = played.timeline.pieces.copy()
    pieces["t_ns"] += by_ns
    timeline = replace(played.timeline, pieces=pieces, end_ns=played.timeline.end_ns + by_ns)
    return replace(
        played, timeline=timeline, on_ns=played.on_ns + by_ns, off_ns=played.off_ns + by_ns
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--boards", type=int, default=40, help="of each type")
    arguments = parser.parse_args()
    verdicts = Verdicts()
    print(f"{'board':10} {'error stated':>14} {'error found (1 sigma)':>22} {'covered':>9}")
    for key in BOARDS:
        off, stated, untold = [], [], 0
        for seed in range(arguments.boards):
            gain = 1 + GAIN_SIGMA * float(np.random.default_rng([seed, 1]).standard_normal())
            unit = replace(drawn_unit(key, seed), gain=gain)
            with tempfile.TemporaryDirectory() as folder:
                log = Path(folder) / "meter.csv"
                log.write_text("time,power_w\n1,100\n")
                meter = WallMeter(log, SUPPLY)
                bench = MeteredBench(unit, log=log)
                found = gain_from_waves(bench, meter, seed=seed, progress=lambda _: None).gain
            if isinstance(found, Unavailable):
                untold += 1
                print(f"  {key} {seed}: {found.reason}")
            else:
                off.append(found.value - gain)
                stated.append(found.error)
        covered = float(np.mean(np.abs(off) <= np.array(stated)))
        print(f"{key:10} {np.median(stated):>14.2%} {np.std(off):>22.2%} {covered:>9.1%}")
        verdicts.at_least(f"{key} covered", covered, COVERED, percent=True)
        verdicts.at_most(f"{key} not told", untold / arguments.boards, 0.05)
    verdicts.show()
    return 0 if verdicts.all_met else 1


if __name__ == "__main__":
    sys.exit(main())

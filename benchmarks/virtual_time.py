"""What a run in virtual time costs: playing it, and its trace at several sampling rates.

    python benchmarks/virtual_time.py [--gpu v100] [--workload resnet50] [--limit 200]

CPU time of this process, the best of several rounds, since other work on the machine only adds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

from joulewise.simulate.boards import load_board, make_unit
from joulewise.simulate.model import ControlSettings
from joulewise.simulate.physics.board_state import rest
from joulewise.simulate.physics.integrate import play
from joulewise.simulate.sensor import ALL_QUANTITIES, POWER_AND_ENERGY
from joulewise.simulate.virtual import simulate
from joulewise.simulate.workloads import load_workload
from joulewise.units import NS_PER_S

ROUNDS = 15
PROMISED_NS = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", default="v100")
    parser.add_argument("--workload", default="resnet50")
    parser.add_argument("--limit", type=float, default=200.0)
    arguments = parser.parse_args()

    board = load_board(arguments.gpu)
    unit, controls = make_unit(board, 0), ControlSettings(arguments.limit)
    workload = load_workload(arguments.workload, board)
    run = simulate(workload, unit, controls)
    print(
        f"{workload.name} on {board.name} at {controls.limit_w:.0f} W: "
        f"{run.time_s:.1f} s, {run.energy_j / 1000:.1f} kJ, {len(run.timeline.pieces)} pieces"
    )
    print(f"play, warm start   {best_s(lambda: simulate(workload, unit, controls)) * 1e3:8.2f} ms")
    cold_s = best_s(lambda: simulate(workload, unit, controls, start="cold"))
    print(f"play, cold start   {cold_s * 1e3:8.2f} ms")

    print(f"\ntrace, CPU a row (promised: {PROMISED_NS} ns)")
    print(f"{'rate':>8} {'rows':>9} {'t, power, energy':>18} {'all columns':>14}")
    for rate_hz in (10, 50, 100, 1000):
        rows = len(run.trace(rate_hz)["t_ns"])
        fast, full = (
            best_s(partial(run.trace, rate_hz, q)) / rows * 1e9
            for q in (POWER_AND_ENERGY, ALL_QUANTITIES)
        )
        print(f"{rate_hz:>5} Hz {rows:>9} {fast:>15.0f} ns {full:>11.0f} ns")

    _, settled = play(unit, rest(unit, 0), workload.step, controls, until_ns=60 * NS_PER_S)
    ahead_ns = settled.t_ns + NS_PER_S
    second, _ = play(unit, settled, workload.step, controls, until_ns=ahead_ns)
    second_s = best_s(lambda: play(unit, settled, workload.step, controls, until_ns=ahead_ns))
    step_s = best_s(lambda: play(unit, settled, workload.step, controls, steps=1))
    print(
        f"\nin real time: 1 s ahead {second_s * 1e6:.0f} us ({len(second.pieces)} pieces), ", end=""
    )
    print(f"one step {step_s * 1e6:.0f} us")


def best_s(work: Callable[[], object]) -> float:
    work()
    times = []
    for _ in range(ROUNDS):
        start, calls = time.process_time(), 0
        while (spent := time.process_time() - start) < 0.02:
            work()
            calls += 1
        times.append(spent / calls)
    return min(times)


if __name__ == "__main__":
    main()

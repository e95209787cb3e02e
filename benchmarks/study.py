"""A published study again, on the simulated V100: ECG, MNIST big and MNIST small at four limits.

    python benchmarks/study.py [FOLDER]

150, 200, 250 and 300 W, ten epochs, ten repetitions in random order, in virtual time. The figures
go to FOLDER, for a paper (PDF, 85 mm) and for a screen (SVG, light and dark). What the source
reports is judged: least energy and EDP at 150 W for the first two, a parabola that explains nearly
all of ECG, one that fits MNIST big worse, and none for MNIST small, whose limit never binds.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from helpers.verdict import Verdicts
from published import Silent

from joulewise.data.sweeps import POWER_LIMIT, Sweep
from joulewise.metrics.evaluate import evaluate
from joulewise.metrics.result import ParabolaFit, SweepResult
from joulewise.report.charts.files import write_chart
from joulewise.report.charts.sweep import chart_sweep
from joulewise.sweep.lifecycle import prepare, run_sweep
from joulewise.sweep.spec import SimulationSpec, SweepSpec

NETWORKS = ("ecg", "mnist-big", "mnist-small")
FORMS = (("print", ".pdf"), ("light", ".svg"), ("dark", ".svg"))


def main(folder: Path | None) -> int:
    with tempfile.TemporaryDirectory() as scratch:
        store = Path(scratch)
        studied = {network: studied_again(network, store) for network in NETWORKS}
        for network, (sweep, result) in studied.items():
            show(network, result)
            if folder is not None:
                draw(network, sweep, result, store, folder)
    verdicts = judged({network: result for network, (_, result) in studied.items()})
    verdicts.show()
    return 0 if verdicts.all_met else 1


def studied_again(network: str, store: Path) -> tuple[Sweep, SweepResult]:
    asked = SweepSpec(
        axes={POWER_LIMIT: "150:300:50"},
        repeat=10,
        seed=1,
        simulated=SimulationSpec("v100", network),
        name=network,
    )
    sweep = run_sweep(prepare(asked), store, Silent())
    return sweep, evaluate(sweep)


def judged(results: dict[str, SweepResult]) -> Verdicts:
    verdicts = Verdicts()
    for network in ("ecg", "mnist-big"):
        for metric in ("energy", "edp"):
            limit_w = results[network].best[metric].setting[POWER_LIMIT]
            verdicts.at_least(f"{network}: least {metric} at 150 W", limit_w == 150, 1)
    ecg, big = (fits(results[network]) for network in ("ecg", "mnist-big"))
    for quantity, fit in ecg.items():
        verdicts.at_least(f"ecg: adjusted R² of {quantity}", fit.adjusted_r2 or 0, 0.99)
        worse = (big[quantity].adjusted_r2 or 0) < (fit.adjusted_r2 or 0)
        verdicts.at_least(f"mnist-big: {quantity} fits worse than of ecg", worse, 1)
        verdicts.at_least(f"ecg: the parabola of {quantity} is drawn", not fit.problem, 1)
    never = all("no limit binds" in fit.problem for fit in fits(results["mnist-small"]).values())
    verdicts.at_least("mnist-small: the limit never binds", never, 1)
    return verdicts


def fits(result: SweepResult) -> dict[str, ParabolaFit]:
    return {fit.quantity: fit for fit in result.fits}


def show(network: str, result: SweepResult) -> None:
    print(f"\n{network}")
    for point in result.points:
        energy_j, time_s = point.energy_j.mean, point.time_s.mean
        print(
            f"  {point.setting!s:6} {energy_j / 1000:8.2f} kJ  {time_s:7.2f} s  "
            f"{energy_j / time_s:6.1f} W"
        )
    for quantity, fit in fits(result).items():
        print(f"  {quantity:6} adjusted R² {fit.adjusted_r2:7.4f}  {fit.problem}")


def draw(network: str, sweep: Sweep, result: SweepResult, store: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for chart in chart_sweep(sweep, result, store):
        for theme, form in FORMS:
            write_chart(chart, folder / f"{network}-{chart.key}-{theme}{form}", theme)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit("name at most one folder: python benchmarks/study.py [FOLDER]")
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) == 2 else None))

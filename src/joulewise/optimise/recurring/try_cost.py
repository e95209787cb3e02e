"""What a try cost, from its run: from its first epoch to the moment at which it reached the target.

What comes before the first epoch is the same at every value of the job's parameter, and no epoch:
as in Zeus, it is left out. Where no epochs are marked, the try counts from its start; where the
target was not reached, to its end.

The cost of one more epoch is that at the setting which the tuning chose: the mean of the epochs in
which it was held throughout; where there is none, the mean of all epochs without what exploring
took above the same steps at the choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from joulewise.analyse.run_windows import measure_windows
from joulewise.data import RunResult, total
from joulewise.data.jobs import training_cost
from joulewise.data.tuning import Tuning, TuningState
from joulewise.optimise.recurring.target_progress import TargetProgress
from joulewise.optimise.recurring.try_watch import priced_devices
from joulewise.units import NS_PER_S


@dataclass(frozen=True)
class TryCost:
    """Time, energy and cost of a try from its first epoch to the target, and the cost of one epoch.

    ``epoch_cost`` is None without whole epochs. ``is_at_least`` says that a device whose energy
    counts could not be read throughout: energy and cost are lower bounds then. ``run_time_s`` and
    ``run_energy_j`` are those of the whole run on the same devices, of which the try is a part;
    None where they are not known. ``has_epochs`` says whether it counts from the first epoch, or
    from the start of the run.
    """

    time_s: float
    energy_j: float
    cost: float
    epoch_cost: float | None
    is_at_least: bool = False
    run_time_s: float | None = None
    run_energy_j: float | None = None
    has_epochs: bool = True


def measure_try(
    run: Path,
    result: RunResult,
    progress: TargetProgress,
    *,
    eta: float,
    max_power_w: float,
    tuning: Tuning | None = None,
) -> TryCost | None:
    """The cost of the try that this run was; None where none of its devices was read."""
    devices = priced_devices(result.counted)
    command_ns, end_ns = result.run.span.start_ns, result.run.span.end_ns
    run_ns = command_ns, end_ns
    start_ns = command_ns if progress.began_ns is None else max(command_ns, progress.began_ns)
    if progress.reached_ns is not None:
        end_ns = min(end_ns, max(start_ns, progress.reached_ns))
    windows_ns = [run_ns, (start_ns, end_ns), *progress.windows_ns]
    uses = measure_windows(run, result, windows_ns, devices)
    of_run, whole, *parts = [total(use.energy for use in window.values()) for window in uses]
    if whole is None:
        return None
    whole_j = whole.value

    def price(energy_j: float, time_s: float) -> float:
        return training_cost(eta, energy_j, time_s, max_power_w)

    time_s = (end_ns - start_ns) / NS_PER_S
    epochs = [
        (window_ns, energy.value, (window_ns[1] - window_ns[0]) / NS_PER_S)
        for window_ns, energy in zip(progress.windows_ns, parts, strict=True)
        if energy is not None and not energy.at_least
    ]
    held_ns = _held_windows_ns(tuning, command_ns)
    held = [one for one in epochs if _is_within(one[0], held_ns)]
    chosen = held or epochs
    count = progress.epochs_to_target or progress.epochs
    # A single value without marks of epochs: the one epoch is all that was run.
    is_single = count > 0 and not progress.windows_ns and not whole.at_least
    epoch_cost = price(whole_j, time_s) / count if is_single else None
    if chosen:
        costs = [price(energy_j, seconds) for _, energy_j, seconds in chosen]
        epoch_cost = sum(costs) / len(costs)
        if not held and not whole.at_least and price(whole_j, time_s) > 0:
            extra_j, extra_s = _explored_extra(tuning, whole_j, time_s)
            epoch_cost *= 1 - price(extra_j, extra_s) / price(whole_j, time_s)
    return TryCost(
        time_s,
        whole_j,
        price(whole_j, time_s),
        epoch_cost,
        whole.at_least,
        run_time_s=(run_ns[1] - run_ns[0]) / NS_PER_S,
        run_energy_j=of_run.value if of_run and not of_run.at_least else None,
        has_epochs=progress.began_ns is not None,
    )


def _held_windows_ns(tuning: Tuning | None, start_ns: int) -> list[tuple[int, int]]:
    """When the setting that was chosen in the end was in force."""
    if tuning is None or tuning.chosen is None:
        return []
    return [
        (start_ns + round(phase.start_s * NS_PER_S), start_ns + round(phase.end_s * NS_PER_S))
        for phase in tuning.phases
        if phase.state is TuningState.HOLDING and phase.settings == tuning.chosen
    ]


def _is_within(window_ns: tuple[int, int], outer_ns: Sequence[tuple[int, int]]) -> bool:
    return any(start <= window_ns[0] and window_ns[1] <= end for start, end in outer_ns)


def _explored_extra(tuning: Tuning | None, energy_j: float, time_s: float) -> tuple[float, float]:
    """Joules and seconds that exploring took beyond those of the choice; below 0: it took less.

    At most half of the whole either way: a fault of the fit must not make an epoch free.
    """
    exploration = tuning.exploration if tuning else None
    if exploration is None or exploration.extra_time_s is None:
        return 0.0, 0.0
    extra_j = exploration.extra_energy_j or 0.0
    return (
        min(max(extra_j, -energy_j / 2), energy_j / 2),
        min(max(exploration.extra_time_s, -time_s / 2), time_s / 2),
    )

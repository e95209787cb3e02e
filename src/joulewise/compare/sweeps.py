"""Compares two sweeps: setting by setting, and by the setting that each metric chooses."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from joulewise.compare.judgement import ComparedQuantity, RunValue, compare, not_comparable
from joulewise.compare.quantities import (
    EDP,
    ENERGY,
    POWER,
    RUN,
    SAMPLE,
    TIME,
    WorkCompared,
    add_count_error,
    compare_trials,
    unit_of,
)
from joulewise.compare.runs import DIFFERENT_BOARDS_HINT, CompareWarningCode, simulated_with_real
from joulewise.data import QualityWarning
from joulewise.data.sweeps import Setting, Sweep
from joulewise.metrics.boundary import (
    SystemBoundary,
    TrialAmount,
    View,
    amount,
    count_samples,
    not_marked_error,
)
from joulewise.metrics.evaluate import evaluate
from joulewise.metrics.metric import Metric
from joulewise.metrics.quality import doubtful_trials
from joulewise.metrics.result import Choice, Interval, SweepResult
from joulewise.metrics.trial_table import completed_trials

_QUANTITIES = (ENERGY, TIME, POWER, EDP)
# The power of the number of samples by which a quantity per sample is divided: it cancels in power,
# which is energy over time, and is squared in EDP, which is their product.
_PER_SAMPLE_POWERS = {ENERGY: 1, TIME: 1, POWER: 0, EDP: 2}


@dataclass(frozen=True)
class SettingComparison:
    """A setting that both sweeps have runs of, with every quantity compared."""

    setting: Setting
    quantities: tuple[ComparedQuantity, ...]

    def get(self, quantity: str) -> ComparedQuantity | None:
        """The result for ``energy``, ``time``, ``power`` or ``edp``."""
        return next((it for it in self.quantities if it.quantity == quantity), None)


@dataclass(frozen=True)
class ChoiceComparison:
    """The settings that a metric chooses in A and in B, and B's choice over A's."""

    metric: str
    a: Choice | None
    b: Choice | None
    energy: ComparedQuantity | None
    time: ComparedQuantity | None


@dataclass(frozen=True)
class SweepComparison:
    """Two sweeps compared; ``only_a`` and ``only_b`` are settings that the other did not run."""

    a: SweepResult
    b: SweepResult
    settings: tuple[SettingComparison, ...]
    choices: tuple[ChoiceComparison, ...]
    only_a: tuple[Setting, ...]
    only_b: tuple[Setting, ...]
    warnings: tuple[QualityWarning, ...]
    work: WorkCompared = field(default_factory=WorkCompared)

    @property
    def simulated(self) -> tuple[bool, bool]:
        """For A and for B, whether its runs were simulated."""
        return bool(self.a.simulated), bool(self.b.simulated)


def compare_sweeps(
    a: Sweep, b: Sweep, metrics: Sequence[Metric] = (), view: View | None = None
) -> SweepComparison:
    """Compare two sweeps at one boundary; per sample or epoch where their runs differ in work."""
    work = _compare_work(a, b)
    view = view or View()
    # Per run, unless the runs of both sweeps are different amounts of work.
    if view.per == RUN:
        view = replace(view, per=work.per)
    result_a, result_b = evaluate(a, metrics, view), evaluate(b, metrics, view)
    runs_a, runs_b = _Runs.of(a, view), _Runs.of(b, view)
    unlike = _unlike_sources(runs_a, runs_b, view.boundary)
    both = [
        point.setting
        for point in result_a.points
        if point.setting in runs_a.settings and point.setting in runs_b.settings
    ]
    metric_names = dict.fromkeys((*result_a.best, *result_b.best))
    return SweepComparison(
        a=result_a,
        b=result_b,
        settings=tuple(
            SettingComparison(it, tuple(_compare_settings(runs_a, it, runs_b, it, unlike)))
            for it in both
        ),
        choices=tuple(
            _compare_choices(name, (result_a, result_b), (runs_a, runs_b), unlike)
            for name in metric_names
        ),
        only_a=tuple(it for it in runs_a.settings if it not in runs_b.settings),
        only_b=tuple(it for it in runs_b.settings if it not in runs_a.settings),
        warnings=(
            *_setting_warnings(result_a, result_b, unlike, has_common=bool(both)),
            *_sweep_warnings(a, b),
            *simulated_with_real(bool(result_a.simulated), bool(result_b.simulated)),
            *_device_warnings(a, b),
            *_work_warnings(a, b, work),
        ),
        work=work,
    )


def range_of(compared: SweepComparison, quantity: str) -> Interval | None:
    """Median, least and greatest ratio of B to A over the settings that both have."""
    ratios = sorted(
        result.ratio.mean
        for setting in compared.settings
        if (result := setting.get(quantity)) is not None and result.ratio is not None
    )
    if not ratios:
        return None
    return Interval(ratios[len(ratios) // 2], ratios[0], ratios[-1])


@dataclass(frozen=True)
class _Runs:
    """A sweep's runs by setting, each as its quantities."""

    settings: dict[Setting, list[dict[str, RunValue]]]
    line: SystemBoundary

    @classmethod
    def of(cls, sweep: Sweep, view: View) -> _Runs:
        trials = completed_trials(sweep)
        counted = [(trial, it) for trial in trials if (it := amount(trial, view)) is not None]
        if trials and not counted:
            raise not_marked_error(view)
        line = SystemBoundary.from_trials(counted, view)
        settings: dict[Setting, list[dict[str, RunValue]]] = {}
        for trial, trial_amount in counted:
            values = _values(trial_amount, line, view.boundary, trial.gpu or trial.host)
            if view.per == SAMPLE:
                samples = count_samples(trial)
                values = {
                    quantity: add_count_error(value, samples, _PER_SAMPLE_POWERS[quantity])
                    for quantity, value in values.items()
                }
            settings.setdefault(trial.setting, []).append(values)
        return cls(settings, line)

    def samples(self, setting: Setting, quantity: str) -> list[RunValue]:
        return [run[quantity] for run in self.settings.get(setting, ()) if quantity in run]


def _values(
    trial: TrialAmount, line: SystemBoundary, boundary: str, board: str
) -> dict[str, RunValue]:
    values = {TIME: RunValue(trial.time_s)}
    energy = dict(line.energies(trial)).get(boundary)
    if energy is None:
        return values
    for quantity, factor in ((ENERGY, 1.0), (POWER, 1 / trial.time_s), (EDP, trial.time_s)):
        values[quantity] = RunValue(
            energy.value * factor,
            energy.error_sampling * factor,
            {board: energy.error_gain * factor},
        )
    return values


def _compare_settings(
    a: _Runs, setting_a: Setting, b: _Runs, setting_b: Setting, unlike: str
) -> Iterator[ComparedQuantity]:
    """``unlike`` is why the energies are not comparable; empty where they are."""
    for quantity in _QUANTITIES:
        samples = a.samples(setting_a, quantity), b.samples(setting_b, quantity)
        if unlike and quantity != TIME:
            yield not_comparable(quantity, unit_of(quantity), samples, unlike)
        else:
            yield compare(quantity, unit_of(quantity), *samples)


def _compare_choices(
    metric: str, results: tuple[SweepResult, SweepResult], runs: tuple[_Runs, _Runs], unlike: str
) -> ChoiceComparison:
    a, b = (result.best.get(metric) for result in results)
    if a is None or b is None:
        return ChoiceComparison(metric, a, b, None, None)
    compared = _compare_settings(runs[0], a.setting, runs[1], b.setting, unlike)
    by_quantity = {it.quantity: it for it in compared}
    return ChoiceComparison(metric, a, b, by_quantity[ENERGY], by_quantity[TIME])


def _unlike_sources(a: _Runs, b: _Runs, boundary: str) -> str:
    """Why the energies are not of the same devices or sources; empty where they are."""
    sources = [runs.line.sources.get(boundary, "") for runs in (a, b)]
    # Simulated sensors are read as real ones are; a warning of its own says what is simulated.
    alike = {words.replace("GPU simulated", "GPU measured") for words in sources}
    return "" if len(alike) == 1 else "A counts {}; B counts {}".format(*sources)


def _setting_warnings(
    a: SweepResult, b: SweepResult, unlike: str, *, has_common: bool
) -> Iterator[QualityWarning]:
    if unlike:
        yield QualityWarning(
            CompareWarningCode.NOT_COMPARABLE,
            f"the energies do not count the same devices: {unlike}",
            "count only what both have with --boundary gpu, or give --overhead-w",
        )
    if not has_common:
        yield QualityWarning(
            CompareWarningCode.DIFFERENT_WORK,
            "the sweeps have no setting in common",
            "the settings that each metric chooses can still be compared",
        )
    for result, name in ((a, "A"), (b, "B")):
        if any(point.n == 1 for point in result.points):
            yield QualityWarning(
                CompareWarningCode.SINGLE_RUNS,
                f"{name} has settings with a single run: their verdicts rest on the spread of the "
                "other sweep, or on the measurement error alone",
                "sweep again with --repeat 3 or more",
            )


def _sweep_warnings(a: Sweep, b: Sweep) -> Iterator[QualityWarning]:
    """What the runs of the sweeps say of their energies."""
    for sweep, name in ((a, "A"), (b, "B")):
        bounded = sum(bool(trial.bounds) for trial in completed_trials(sweep))
        if bounded:
            yield QualityWarning(
                CompareWarningCode.LOWER_BOUND,
                f"of {bounded} runs of {name} only a lower bound of the energy is known",
                "their energy is not compared",
            )
    for sweep, name in ((a, "A"), (b, "B")):
        runs = doubtful_trials(sweep)
        if runs:
            codes = ", ".join(dict.fromkeys(code for _, codes in runs for code in codes))
            yield QualityWarning(
                CompareWarningCode.RUN_WARNING,
                f"figures of {name} may be wrong: {len(runs)} of its runs have warnings ({codes})",
                f"see: joulewise show {runs[0][0].run}",
            )


def _device_warnings(a: Sweep, b: Sweep) -> Iterator[QualityWarning]:
    if a.gpu_name != b.gpu_name:
        yield QualityWarning(
            CompareWarningCode.DIFFERENT_DEVICES,
            f"different devices: {a.gpu_name or 'unknown'} in A, {b.gpu_name or 'unknown'} in B",
            DIFFERENT_BOARDS_HINT,
        )


def _work_warnings(a: Sweep, b: Sweep, work: WorkCompared) -> Iterator[QualityWarning]:
    work_a, work_b = _describe_work(a), _describe_work(b)
    if work_a != work_b:
        yield QualityWarning(
            CompareWarningCode.DIFFERENT_WORK,
            f"different work: {work_a or 'unknown'} in A, {work_b or 'unknown'} in B",
            "ratios of the choices to their own reference can still be compared",
        )
    if work.unlike:
        counts_a, counts_b = (_range(numbers) for numbers in (work.a, work.b))
        yield QualityWarning(
            CompareWarningCode.DIFFERENT_WORK,
            f"the runs of A have {counts_a} {work.unit}s, those of B {counts_b}",
            f"times and energies are per {work.unit}",
        )
    elif work.is_same is None and not (work_a and work_b):
        yield QualityWarning(
            CompareWarningCode.WORK_NOT_KNOWN,
            "it is not known whether the runs of A and B did the same work; they are compared as "
            "if they had",
            "add a column samples to the tables: the number that each run trained on",
        )


def _compare_work(a: Sweep, b: Sweep) -> WorkCompared:
    """The same command is the same work, however many epochs it took."""
    if _command(a) and _command(a) == _command(b):
        return WorkCompared(RUN, True)
    return compare_trials(completed_trials(a), completed_trials(b))


def _range(numbers: Sequence[int]) -> str:
    return f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def _describe_work(sweep: Sweep) -> str:
    """What every run of a sweep did: its command or its simulated workload; empty of a table."""
    # A simulation has no command: its workload, or what it was modelled on, names its work.
    simulated = sweep.asked.get("simulated")
    if isinstance(simulated, Mapping):
        return str(simulated.get("workload") or simulated.get("like") or "")
    return _command(sweep)


def _command(sweep: Sweep) -> str:
    """The command that was run; empty of a simulation or a table."""
    command = sweep.asked.get("command")
    if isinstance(sweep.asked.get("simulated"), Mapping) or not isinstance(command, list | tuple):
        return ""
    return shlex.join(map(str, command))

"""Two sweeps: setting by setting, and what each metric chooses in one and in the other."""

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
from joulewise.compare.runs import CompareCaution, CompareWarning, simulated_with_real
from joulewise.data.sweeps import Setting, Sweep
from joulewise.metrics.boundary import (
    Line,
    SampleCount,
    TrialAmount,
    View,
    amount,
    count_samples,
    not_marked,
)
from joulewise.metrics.evaluate import evaluate
from joulewise.metrics.metric import Metric
from joulewise.metrics.quality import doubtful_trials
from joulewise.metrics.result import Choice, Interval, SweepResult
from joulewise.metrics.trial_table import entering

_QUANTITIES = (ENERGY, TIME, POWER, EDP)
# How often each is divided by the number of samples where it is per sample: in a power, energy over
# time, the number cancels; in their product it is there twice.
_PER_SAMPLE_POWERS = {ENERGY: 1, TIME: 1, POWER: 0, EDP: 2}


@dataclass(frozen=True)
class SettingCompared:
    """One setting that both have runs of."""

    setting: Setting
    quantities: tuple[ComparedQuantity, ...]

    def get(self, quantity: str) -> ComparedQuantity | None:
        return next((it for it in self.quantities if it.quantity == quantity), None)


@dataclass(frozen=True)
class ChoiceCompared:
    """What a metric prefers in each, and B's choice over A's, each where its sweep ran it."""

    metric: str
    a: Choice | None
    b: Choice | None
    energy: ComparedQuantity | None
    time: ComparedQuantity | None


@dataclass(frozen=True)
class SweepsCompared:
    """``only_a`` and ``only_b`` are settings that the other has no runs of."""

    a: SweepResult
    b: SweepResult
    settings: tuple[SettingCompared, ...]
    choices: tuple[ChoiceCompared, ...]
    only_a: tuple[Setting, ...]
    only_b: tuple[Setting, ...]
    cautions: tuple[CompareWarning, ...]
    work: WorkCompared = field(default_factory=WorkCompared)

    @property
    def simulated(self) -> tuple[bool, bool]:
        """Of A and of B, whether its runs were simulated."""
        return bool(self.a.simulated), bool(self.b.simulated)


def compare_sweeps(
    a: Sweep, b: Sweep, metrics: Sequence[Metric] = (), view: View | None = None
) -> SweepsCompared:
    work = _compare_work(a, b)
    view = view or View()
    if view.per == RUN:
        view = replace(view, per=work.per)
    of_a, of_b = evaluate(a, metrics, view), evaluate(b, metrics, view)
    runs_a, runs_b = _Runs.of(a, view), _Runs.of(b, view)
    odd = _odd(runs_a, runs_b, view.boundary)
    both = [
        point.setting
        for point in of_a.points
        if point.setting in runs_a.settings and point.setting in runs_b.settings
    ]
    names = [*dict.fromkeys((*of_a.best, *of_b.best))]
    return SweepsCompared(
        a=of_a,
        b=of_b,
        settings=tuple(
            SettingCompared(it, tuple(_compared(runs_a, it, runs_b, it, odd))) for it in both
        ),
        choices=tuple(_chosen(name, (of_a, of_b), (runs_a, runs_b), odd) for name in names),
        only_a=tuple(it for it in runs_a.settings if it not in runs_b.settings),
        only_b=tuple(it for it in runs_b.settings if it not in runs_a.settings),
        cautions=(
            *_of_settings(of_a, of_b, odd, has_common=bool(both)),
            *_of_bounds(a, b),
            *_of_doubtful(a, b),
            *simulated_with_real(bool(of_a.simulated), bool(of_b.simulated)),
            *_of_devices(a, b),
            *_of_work(a, b, work),
        ),
        work=work,
    )


def range_of(found: SweepsCompared, quantity: str) -> Interval | None:
    """B over A over all settings that both have: the middle, the least and the most."""
    ratios = [
        it.ratio.mean
        for setting in found.settings
        if (it := setting.get(quantity)) is not None and it.ratio is not None
    ]
    if not ratios:
        return None
    ratios.sort()
    return Interval(ratios[len(ratios) // 2], ratios[0], ratios[-1])


@dataclass(frozen=True)
class _Runs:
    """A sweep's runs by setting, each as its quantities."""

    settings: dict[Setting, list[dict[str, RunValue]]]
    line: Line

    @classmethod
    def of(cls, sweep: Sweep, view: View) -> _Runs:
        trials = entering(sweep)
        counted = [(trial, it) for trial in trials if (it := amount(trial, view)) is not None]
        if trials and not counted:
            raise not_marked(view)
        line = Line.around(counted, view)
        found: dict[Setting, list[dict[str, RunValue]]] = {}
        for trial, it in counted:
            told = _values(it, line, view.boundary, trial.gpu or trial.host)
            if view.per == SAMPLE:
                told = _with_count_error(told, count_samples(trial))
            found.setdefault(trial.setting, []).append(told)
        return cls(found, line)

    def samples(self, setting: Setting, quantity: str) -> list[RunValue]:
        return [it[quantity] for it in self.settings.get(setting, ()) if quantity in it]


def _values(found: TrialAmount, line: Line, boundary: str, board: str) -> dict[str, RunValue]:
    told = {TIME: RunValue(found.time_s)}
    energy = dict(line.energies(found)).get(boundary)
    if energy is None:
        return told
    for quantity, factor in ((ENERGY, 1.0), (POWER, 1 / found.time_s), (EDP, found.time_s)):
        told[quantity] = RunValue(
            energy.value * factor,
            energy.error_sampling * factor,
            {board: energy.error_gain * factor},
        )
    return told


def _with_count_error(told: dict[str, RunValue], count: SampleCount | None) -> dict[str, RunValue]:
    return {
        quantity: add_count_error(sample, count, _PER_SAMPLE_POWERS[quantity])
        for quantity, sample in told.items()
    }


def _compared(
    a: _Runs, of_a: Setting, b: _Runs, of_b: Setting, odd: str
) -> Iterator[ComparedQuantity]:
    for quantity in _QUANTITIES:
        samples = a.samples(of_a, quantity), b.samples(of_b, quantity)
        if odd and quantity != TIME:
            yield not_comparable(quantity, unit_of(quantity), samples, odd)
        else:
            yield compare(quantity, unit_of(quantity), *samples)


def _chosen(
    metric: str, results: tuple[SweepResult, SweepResult], runs: tuple[_Runs, _Runs], odd: str
) -> ChoiceCompared:
    a, b = (result.best.get(metric) for result in results)
    if a is None or b is None:
        return ChoiceCompared(metric, a, b, None, None)
    found = {it.quantity: it for it in _compared(runs[0], a.setting, runs[1], b.setting, odd)}
    return ChoiceCompared(metric, a, b, found[ENERGY], found[TIME])


def _odd(a: _Runs, b: _Runs, boundary: str) -> str:
    of_a, of_b = a.line.sources.get(boundary, ""), b.line.sources.get(boundary, "")
    alike = {words.replace("GPU simulated", "GPU measured") for words in (of_a, of_b)}
    return "" if len(alike) == 1 else f"A counts {of_a}; B counts {of_b}"


def _of_settings(
    a: SweepResult, b: SweepResult, odd: str, *, has_common: bool
) -> Iterator[CompareWarning]:
    if odd:
        yield CompareWarning(
            CompareCaution.NOT_COMPARABLE,
            f"the energies are of different things: {odd}",
            "count only what both have: --boundary gpu, or say --overhead-w",
        )
    if not has_common:
        yield CompareWarning(
            CompareCaution.DIFFERENT_WORK,
            "no setting was run in both",
            "what each metric chooses can still be compared",
        )
    for result, name in ((a, "A"), (b, "B")):
        if any(point.n == 1 for point in result.points):
            yield CompareWarning(
                CompareCaution.SINGLE_RUNS,
                f"{name} has settings with a single run: their verdicts rest on the other's "
                "spread, or on the error of the meter alone",
                "sweep again with --repeat 3 or more",
            )


def _of_bounds(a: Sweep, b: Sweep) -> Iterator[CompareWarning]:
    for sweep, name in ((a, "A"), (b, "B")):
        bounded = sum(bool(trial.bounds) for trial in entering(sweep))
        if bounded:
            yield CompareWarning(
                CompareCaution.LOWER_BOUND,
                f"of {bounded} runs of {name} only a lower bound of the energy is known",
                "their energy is not compared",
            )


def _of_doubtful(a: Sweep, b: Sweep) -> Iterator[CompareWarning]:
    for sweep, name in ((a, "A"), (b, "B")):
        runs = doubtful_trials(sweep)
        if runs:
            codes = ", ".join(dict.fromkeys(code for _, codes in runs for code in codes))
            yield CompareWarning(
                CompareCaution.RUN_WARNING,
                f"figures of {name} may be wrong: {len(runs)} of its runs have warnings ({codes})",
                f"see: joulewise show {runs[0][0].run}",
            )


def _of_devices(a: Sweep, b: Sweep) -> Iterator[CompareWarning]:
    if a.gpu_name != b.gpu_name:
        yield CompareWarning(
            CompareCaution.DIFFERENT_DEVICES,
            f"different devices: {a.gpu_name or 'not told'} in A, {b.gpu_name or 'not told'} in B",
            "what differs is theirs, too, and the gain of each board is in the intervals",
        )


def _of_work(a: Sweep, b: Sweep, work: WorkCompared) -> Iterator[CompareWarning]:
    of_a, of_b = _work(a), _work(b)
    if of_a != of_b:
        yield CompareWarning(
            CompareCaution.DIFFERENT_WORK,
            f"not the same work: {of_a or 'not told'} in A, {of_b or 'not told'} in B",
            "ratios of the choices to their own reference can still be compared",
        )
    if work.unlike:
        counts_a, counts_b = (_range(numbers) for numbers in (work.a, work.b))
        yield CompareWarning(
            CompareCaution.DIFFERENT_WORK,
            f"the runs of A have {counts_a} {work.unit}s, those of B {counts_b}",
            f"times and energies are per {work.unit}",
        )
    elif work.is_same is None and not (of_a and of_b):
        yield CompareWarning(
            CompareCaution.WORK_NOT_KNOWN,
            "whether the runs of A and B did the same work is not known, and they are compared as "
            "if they had",
            "add a column samples to the tables, the number that each run trained on",
        )


def _compare_work(a: Sweep, b: Sweep) -> WorkCompared:
    """The same command did the same work, however many epochs it took to its end."""
    if _command(a) and _command(a) == _command(b):
        return WorkCompared(RUN, True)
    return compare_trials(entering(a), entering(b))


def _range(numbers: Sequence[int]) -> str:
    return f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def _work(sweep: Sweep) -> str:
    """What every run of it did."""
    simulated = sweep.asked.get("simulated")
    if isinstance(simulated, Mapping):
        return str(simulated.get("workload") or simulated.get("like") or "")
    return _command(sweep)


def _command(sweep: Sweep) -> str:
    """What was run; empty of what was simulated, or comes from elsewhere."""
    command = sweep.asked.get("command")
    if isinstance(sweep.asked.get("simulated"), Mapping) or not isinstance(command, list | tuple):
        return ""
    return shlex.join(map(str, command))

"""The record of a tuning: its phases, what exploring cost, what the choice saves; tuning.json.

The controller notes here what happens. :meth:`TuningRecord.make` puts it together as a
:class:`~joulewise.data.tuning.Tuning`, and :func:`find_saving` is the one place that says what the
choice saves.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Final

from joulewise.data.sweeps import MEM_CLOCK, POWER_LIMIT, SM_CLOCK, Setting
from joulewise.data.tuning import (
    Exploration,
    FittedSetting,
    KnownSetting,
    ProgramMetric,
    SavedShare,
    Saving,
    SettingSteps,
    StepEstimate,
    Tuning,
    TuningEnd,
    TuningPhase,
    TuningRestart,
    TuningState,
)
from joulewise.metrics.result import Interval
from joulewise.optimise.live.blocks import StepBlock, TimedStep
from joulewise.optimise.live.policy.choice import TuningChoice
from joulewise.optimise.live.policy.tuning_policy import TuningPolicy
from joulewise.optimise.live.savings import SavingEstimate, compare_logged, saved_share
from joulewise.optimise.live.tuning_options import TuningOptions
from joulewise.units import NS_PER_S

# The oldest phases of holding and checking are shown as one beyond this number.
_MOST_PHASES: Final = 400
_MOST_LOGGED: Final = 1000  # values of one figure and setting that are kept, the latest


@dataclass
class StepTotal:
    """Steps at one candidate; ``measured`` are those whose energy is known."""

    steps: int = 0
    measured: int = 0
    time_s: float = 0.0
    energy_j: float = 0.0

    def add(self, block: StepBlock, energy_j: float | None) -> None:
        self.steps += block.steps
        self.time_s += block.time_s
        if energy_j is not None:
            self.measured += block.steps
            self.energy_j += energy_j

    @property
    def step_time_s(self) -> float:
        return self.time_s / self.steps if self.steps else math.nan

    @property
    def step_energy_j(self) -> float:
        return self.energy_j / self.measured if self.measured else math.nan


@dataclass
class _Phase:
    state: TuningState
    index: int | None
    start_ns: int
    steps: int = 0
    time_s: float = 0.0


@dataclass
class _Account:
    """What one exploration took, and the steps measured until the next one begins.

    ``explored`` are the steps while exploring and their seconds. ``chosen`` is what was held.
    """

    explored: dict[int | None, list[float]] = field(
        default_factory=lambda: defaultdict(lambda: [0.0, 0.0])
    )
    measured: dict[int, StepTotal] = field(default_factory=lambda: defaultdict(StepTotal))
    chosen: int | None = None

    @property
    def steps(self) -> float:
        return sum(count for count, _ in self.explored.values())

    @property
    def time_s(self) -> float:
        return sum(spent_s for _, spent_s in self.explored.values())

    @property
    def energy_j(self) -> float | None:
        """Of the GPUs; steps at a setting that was not measured count as the mean of all."""
        together = StepTotal()
        for each in self.measured.values():
            together.measured += each.measured
            together.energy_j += each.energy_j
        if not self.explored:
            return 0.0
        if not together.measured:
            return None
        energy_j = 0.0
        for index, (count, _) in self.explored.items():
            total = self.measured.get(index) if index is not None else None
            known = total if total is not None and total.measured else together
            energy_j += count * known.step_energy_j
        return energy_j


@dataclass(frozen=True)
class TuningStatus:
    """What the controller decides, as the record states it.

    ``totals`` are those of the exploration; ``proof`` and ``checks`` compare blocks of steps.
    """

    state: TuningState
    reason: str
    chosen: int | None
    bound: float | None
    totals: Mapping[int, StepTotal]
    proof: SavingEstimate | None
    checks: SavingEstimate | None


class TuningRecord:
    """What happened in a tuning. Times are of the monotonic clock (ns)."""

    def __init__(
        self,
        policy: TuningPolicy,
        options: TuningOptions,
        started_ns: int,
        starting_index: int | None,
    ) -> None:
        self.notes: tuple[str, ...] = ()
        self._policy = policy
        self._options = options
        self._started_ns = self._last_ns = started_ns
        self._phases = [_Phase(TuningState.WARMING_UP, starting_index, started_ns)]
        self._accounts = [_Account()]  # of each exploration
        self._changes: list[TuningRestart] = []
        self._early_end: TuningEnd | None = None
        self._settled_ns: int | None = None
        self._settled_steps: int | None = None
        self._steps = 0
        self._steps_in: Counter[TuningState] = Counter()  # phases are merged, these are not
        self._logged: dict[str, dict[int, deque[tuple[float, float]]]] = defaultdict(
            lambda: defaultdict(lambda: deque(maxlen=_MOST_LOGGED))
        )

    # Notes

    def add_step(self, step: TimedStep, index: int | None) -> None:
        """A step that ended at this candidate; None: at none of them."""
        self._steps += 1
        self.pass_time(step.end_ns)
        phase = self._phase_at(step.end_ns)
        step_s = (step.end_ns - step.start_ns) / NS_PER_S
        phase.steps += 1
        phase.time_s += step_s
        self._steps_in[phase.state] += 1
        if phase.state is TuningState.EXPLORING:
            spent = self._accounts[-1].explored[index]
            spent[0] += 1
            spent[1] += step_s

    def pass_time(self, now_ns: int) -> None:
        self._last_ns = max(self._last_ns, now_ns)

    def add_logged(self, name: str, value: float, index: int) -> None:
        """A figure that the program has logged at this candidate."""
        self._logged[name][index].append((float(self._steps), value))

    def add_restart(self, now_ns: int, reason: str) -> None:
        self._changes.append(TuningRestart(self.seconds(now_ns), reason))
        self._accounts.append(_Account())

    def add_early_end(self, now_ns: int, reason: str) -> None:
        self._early_end = TuningEnd(self.seconds(now_ns), reason)

    def add_settled(self, now_ns: int, index: int) -> None:
        """A setting was chosen; the first time counts as when it settled."""
        self._accounts[-1].chosen = index
        if self._settled_ns is None:
            self._settled_ns, self._settled_steps = now_ns, self.exploring_steps

    def add_note(self, note: str) -> None:
        if note not in self.notes:
            self.notes = (*self.notes, note)

    def enter(self, state: TuningState, index: int | None, now_ns: int) -> None:
        """A phase begins, unless it is the one that lasts."""
        last = self._phases[-1]
        if (last.state, last.index) == (state, index):
            return
        now_ns = max(now_ns, last.start_ns)
        if last.start_ns == now_ns and not last.steps:
            self._phases[-1] = _Phase(state, index, now_ns)
        else:
            self._phases.append(_Phase(state, index, now_ns))
        if len(self._phases) > _MOST_PHASES:
            self._merge_oldest()

    # What is known

    @property
    def last_ns(self) -> int:
        """The latest time that was told."""
        return self._last_ns

    @property
    def measured(self) -> dict[int, StepTotal]:
        """The measured steps at each candidate since the last exploration began."""
        return self._accounts[-1].measured

    @property
    def exploring_steps(self) -> int:
        """Over all explorations."""
        return round(sum(account.steps for account in self._accounts))

    def state_at(self, t_ns: int) -> TuningState:
        return self._phase_at(t_ns).state

    def steps_in(self, state: TuningState) -> int:
        return self._steps_in[state]

    def seconds(self, t_ns: int) -> float:
        """Since the command started."""
        return (t_ns - self._started_ns) / NS_PER_S

    @property
    def axes(self) -> tuple[str, ...]:
        """The keys of settings in which candidates differ."""
        keys = (POWER_LIMIT, SM_CLOCK, MEM_CLOCK)
        candidates = self._policy.candidates
        return tuple(key for key in keys if any(getattr(c, key) is not None for c in candidates))

    def setting(self, index: int) -> Setting:
        candidate = self._policy.candidates[index]
        return Setting.of({key: getattr(candidate, key) for key in self.axes})

    def make(self, status: TuningStatus) -> Tuning:
        """The record up to now, as in tuning.json."""
        policy, options, chosen = self._policy, self._options, status.chosen
        choice = policy.choice if policy.choice and policy.choice.index == chosen else None
        made = Tuning(
            metric=policy.metric.name,
            axes=self.axes,
            state=status.state,
            settled=chosen is not None,
            reason=status.reason,
            reference=self.setting(policy.reference),
            chosen=None if chosen is None else self.setting(chosen),
            devices=options.devices,
            boundary=options.boundary,
            overhead_w=options.overhead_w,
            max_slowdown=status.bound,
            step_source=options.step_source,
            steps_to_settle=self._settled_steps,
            time_to_settle_s=None if self._settled_ns is None else self.seconds(self._settled_ns),
            probability=None if choice is None else choice.probability,
            tried=self._tried(status.totals),
            exploration=self._exploration(chosen),
            early_end=self._early_end,
            changes=tuple(self._changes),
            phases=self._stored_phases(),
            fitted=tuple(
                FittedSetting(
                    self.setting(point.index), _estimate(point.time_s), _estimate(point.energy_j)
                )
                for point in policy.fitted
            ),
            known=self._known(),
            program_metrics=self._program_metrics(chosen),
            notes=self.notes,
        )
        return replace(made, saving=find_saving(made, status.proof, status.checks, choice))

    def _tried(self, totals: Mapping[int, StepTotal]) -> tuple[SettingSteps, ...]:
        return tuple(
            SettingSteps(
                self.setting(tried.index),
                totals[tried.index].measured if tried.index in totals else tried.steps,
                time := _estimate(tried.time_s),
                self._with_overhead(_estimate(tried.energy_j), time),
            )
            for tried in self._policy.tried
        )

    def _with_overhead(self, energy_j: StepEstimate, time_s: StepEstimate) -> StepEstimate:
        """The energy of the GPUs and of what counts besides, which draws as long as a step takes.

        The ends of the intervals are added: the noise of time is part of that of energy.
        """
        ends = (
            None if joules is None or seconds is None else joules + self._overhead_j(seconds)
            for joules, seconds in ((energy_j.low, time_s.low), (energy_j.high, time_s.high))
        )
        return StepEstimate(energy_j.mean + self._overhead_j(time_s.mean), *ends)

    def _overhead_j(self, time_s: float) -> float:
        return self._options.overhead_w * time_s

    def _known(self) -> tuple[KnownSetting, ...]:
        place = {candidate: at for at, candidate in enumerate(self._policy.candidates)}
        return tuple(
            KnownSetting(
                self.setting(place[mean.candidate]), mean.log_time, mean.log_energy, mean.steps
            )
            for mean in self._policy.knowledge()
        )

    def _exploration(self, chosen: int | None) -> Exploration:
        """Each exploration is compared with the setting held after it, in its phase of the job."""
        steps = round(sum(account.steps for account in self._accounts))
        time_s = sum(account.time_s for account in self._accounts)
        energies = [account.energy_j for account in self._accounts]
        known = [energy_j for energy_j in energies if energy_j is not None]
        if len(known) < len(energies) or not any(known):
            return Exploration(steps, time_s, None)
        energy_j = sum(known) + self._overhead_j(time_s)
        extras = [self._extra(account, chosen) for account in self._accounts]
        told = [extra for extra in extras if extra is not None]
        if chosen is None or not told:
            return Exploration(steps, time_s, energy_j)
        return Exploration(steps, time_s, energy_j, *map(sum, zip(*told, strict=True)))

    def _extra(self, account: _Account, chosen: int | None) -> tuple[float, float] | None:
        """Seconds and joules of an exploration above as many steps at what was held after it.

        None where nothing of that was measured.
        """
        index = chosen if account.chosen is None else account.chosen
        held = account.measured.get(index) if index is not None else None
        energy_j = account.energy_j
        if held is None or not held.measured or energy_j is None:
            return None
        extra_s = account.time_s - account.steps * held.step_time_s
        extra_j = energy_j - account.steps * held.step_energy_j
        return extra_s, extra_j + self._overhead_j(extra_s)

    def _program_metrics(self, chosen: int | None) -> tuple[ProgramMetric, ...]:
        if chosen is None or chosen == self._policy.reference:
            return ()
        compared = (
            compare_logged(name, tuple(values[self._policy.reference]), tuple(values[chosen]))
            for name, values in self._logged.items()
        )
        return tuple(metric for metric in compared if metric is not None)

    # Phases

    def _phase_at(self, t_ns: int) -> _Phase:
        at = bisect_right(self._phases, t_ns, key=attrgetter("start_ns"))
        return self._phases[max(at - 1, 0)]

    def _merge_oldest(self) -> None:
        """Make one of the first two phases in a row that only held and checked."""
        calm = {TuningState.HOLDING, TuningState.CHECKING}
        for at in range(len(self._phases) // 2):
            first, second = self._phases[at : at + 2]
            if {first.state, second.state} <= calm:
                steps, time_s = first.steps + second.steps, first.time_s + second.time_s
                held = replace(first, state=TuningState.HOLDING, steps=steps, time_s=time_s)
                self._phases[at : at + 2] = [held]
                return

    def _stored_phases(self) -> tuple[TuningPhase, ...]:
        ends_ns = [phase.start_ns for phase in self._phases[1:]]
        ends_ns.append(max(self._last_ns, self._phases[-1].start_ns))
        return tuple(
            TuningPhase(
                phase.state,
                None if phase.index is None else self.setting(phase.index),
                self.seconds(phase.start_ns),
                self.seconds(end_ns),
                phase.steps,
            )
            for phase, end_ns in zip(self._phases, ends_ns, strict=True)
        )


def find_saving(
    tuning: Tuning,
    proof: SavingEstimate | None = None,
    checks: SavingEstimate | None = None,
    choice: TuningChoice | None = None,
) -> Saving | None:
    """What the choice saves, by the best that is known; None where nothing is.

    That is the proof or the checks, whichever is known better; else the measured steps at both
    settings, of which ``tuning.tried`` has the means; else the fit of the policy that made the
    choice. Under the judge of live tuning, after 100 steps at the choice, the energy saved by
    measured steps was off by 0.56 % (root mean square), and by the fit by 0.77 %.
    """
    if tuning.chosen is None or tuning.chosen == tuning.reference:
        return None
    compared = [
        estimate.as_saving(method)
        for estimate, method in ((proof, "proof"), (checks, "checks"))
        if estimate is not None
    ]
    if compared:
        return min(compared, key=lambda saving: saving.energy.error)
    measured = _saving_by_steps(tuning)
    if measured is not None or choice is None:
        return measured
    return Saving(_by_ratio(choice.energy_ratio), _by_ratio(choice.time_ratio), "fit", 0)


def _by_ratio(ratio: Interval) -> SavedShare:
    high = ratio.mean if ratio.high is None else ratio.high
    low = ratio.mean if ratio.low is None else ratio.low
    half = max(math.log(high / ratio.mean), math.log(ratio.mean / low))
    return saved_share(math.log(ratio.mean), half)


def _saving_by_steps(tuning: Tuning) -> Saving | None:
    """Intervals of the two means are independent: their squares add up, as logarithms."""
    tried = {one.settings: one for one in tuning.tried}
    choice = tried.get(tuning.chosen) if tuning.chosen else None
    before = tried.get(tuning.reference)
    if choice is None or before is None:
        return None
    energy = _compare_means(choice.step_energy_j, before.step_energy_j)
    time_share = _compare_means(choice.step_time_s, before.step_time_s)
    return Saving(energy, time_share, "trials", 0) if energy and time_share else None


def _compare_means(choice: StepEstimate, before: StepEstimate) -> SavedShare | None:
    halves = [_log_half_width(choice), _log_half_width(before)]
    known = [half for half in halves if half is not None]
    if len(known) < len(halves):
        return None
    return saved_share(math.log(choice.mean / before.mean), math.hypot(*known))


def _log_half_width(value: StepEstimate) -> float | None:
    if value.low is None or value.high is None or value.low <= 0:
        return None
    return math.log(value.high / value.low) / 2


def _estimate(interval: Interval) -> StepEstimate:
    ends: Sequence[float | None] = (interval.low, interval.high)
    low, high = (end if end is not None and math.isfinite(end) else None for end in ends)
    return StepEstimate(interval.mean, low, high)

"""The policy of live tuning: which setting to try next, for how many steps, and when to settle.

It looks at the reference first, then at a setting in the middle, then wherever a look promises the
largest gain a step. It settles when the choice is probably good enough, or when looking on is not
worth it, and then watches for drift, which begins a new exploration. It knows no clock and no GPU:
a controller asks it, sets what it says, and tells it the steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.student_t import student
from joulewise.errors import UsageError
from joulewise.metrics.metric import Metric, parse
from joulewise.metrics.result import Interval
from joulewise.optimise.live.policy.choice import (
    CHANGED_WHILE_EXPLORING,
    REFUSED,
    EarlierMean,
    FittedPoint,
    SettledReason,
    TriedSetting,
    TuningChange,
    TuningChoice,
)
from joulewise.optimise.live.policy.drift import Drift, DriftDetector
from joulewise.optimise.live.policy.objective import (
    Judgement,
    LookCost,
    TuningObjective,
    next_look,
)
from joulewise.optimise.live.policy.posterior import CurvePosterior, CurveSamples, StepMeans
from joulewise.optimise.live.policy.response_model import Positions, TuningCandidate
from joulewise.optimise.live.policy.step_statistics import MeanSteps, StepStatistics

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Array = NDArray[np.float64]

# The probability of a good choice at which it settles. Over one axis, at 0.96, a tenth fewer steps
# are explored, and of measured curves one tuning in a hundred more ends off the best.
_WANTED_PROBABILITY: Final = 0.98
# Likewise over several axes without a bound, where it takes more steps to be so sure: at 0.965,
# four more.
_WANTED_OVER_AXES: Final = 0.96
# Steps of one exploration at most, unless the caller says otherwise. At 130, of tunings over both
# axes with a bound one in ten more ends off the best.
_MOST_STEPS: Final = 142
# A look is as long as it takes to know a mean this well, as a share, within the limits below.
_LOOK_DEVIATION: Final = 0.0055
_LEAST_LOOK_STEPS: Final = 6
_MOST_LOOK_STEPS: Final = 40
_HELD_STEPS: Final = 20  # of one ask when settled: how often the controller hears of a change
# Where looking on can lower the expected loss by no more than this share, it settles.
_WORTHLESS_LOSS: Final = 0.0005
# The first candidate besides the reference: nearest to this share of each axis, from its lowest.
_FIRST_POSITION: Final = 0.45
# A look this many standard deviations from earlier ones at the same candidate, besides a difference
# of 1 % for heat, means that the job has changed meanwhile. At 3, one look in 400 would.
_CHANGED_SIGMAS: Final = 6.0
_CHANGED_SHARE: Final = 0.01
# Such changes begin the exploration anew so often at most: a job that never stands still is
# settled with what is known. Doubled, it explores for twice as long.
_MOST_CHANGES: Final = 2
# Exploring again has to pay: where drift comes before so many times the steps of the exploration
# were held, the next one waits twice as long, as for a job that alternates between two phases.
_WORTHWHILE_HELD: Final = 5
# The choice is judged again after so many steps at it, and whenever they have doubled.
_FIRST_REVIEW_STEPS: Final = 40
# While it is held, a bound counts as broken by the choice when it holds with less than this
# probability: the choice was sure, so that this takes evidence against it.
_HELD_PROBABILITY: Final = 0.5
# Earlier runs are dropped where they make this run's steps so many times less likely (log of the
# Bayes factor): another batch size, another load. Chosen: 3, where evidence begins to be
# substantial (Jeffreys); at 20, two or three looks more are needed to notice.
_CONTRADICTION: Final = np.log(3.0)
# Fitted curves are shown as they were until there are so many times the steps (chosen).
_REFIT_FACTOR: Final = 1.5
# The host counts as busy where steps vary by more than this share, or looks at one setting differ:
# the noise that is assumed of a step before any was seen. At 0.03, of 36 tunings beside a host that
# slows half of the steps by up to 15 %, one or two break a bound of 5 %; at 0.01 none.
_STEADY_NOISE: Final = 0.01
_EARLIER_DEVIATION: Final = 0.003  # of an earlier run's mean, besides the noise of its steps


class TuningPolicy:
    """Chooses among candidates, which it names by their index.

    Times are seconds a step, energies joules a step of the GPUs.
    """

    def __init__(
        self,
        candidates: Sequence[TuningCandidate],
        reference: int,
        metric: Metric | str,
        *,
        seed: int = 0,
        max_slowdown: float | None = None,
        overhead_w: float = 0.0,
        max_power_w: float | None = None,
        earlier: Sequence[EarlierMean] = (),
        discard: int = 0,
        most_steps: int = _MOST_STEPS,
        bound_slack: float = 0.0,
    ) -> None:
        """``discard`` steps after a change of setting are its transient, and do not count.

        ``max_slowdown`` holds for the choice, whatever the metric; ``bound_slack`` is the share
        beyond it up to which it holds. ``max_power_w`` is that of
        :class:`~joulewise.metrics.metric.Reference`.
        """
        self.candidates = tuple(candidates)
        if len(set(self.candidates)) < len(self.candidates) or not self.candidates:
            raise UsageError(
                "live tuning needs settings that differ", "give at least two for each axis"
            )
        if not 0 <= reference < len(self.candidates):
            raise UsageError("the reference is none of the settings", "add it to them")
        self.metric = parse(metric) if isinstance(metric, str) else metric
        self.reference = reference
        self.discard = discard
        self.choice: TuningChoice | None = None
        self.chosen: int | None = None
        self.steps = 0
        self.exploring_steps = 0
        self.changes: tuple[TuningChange, ...] = ()
        self._objective = TuningObjective(
            self.metric, reference, max_slowdown, overhead_w, max_power_w, bound_slack
        )
        self._most_steps = most_steps
        self._rng = np.random.default_rng(seed)
        self._positions = Positions.of(self.candidates)
        self._allowed = np.ones(len(self.candidates), dtype=bool)
        self._earlier = _earlier_means(earlier, self.candidates)
        runs = 1 + int(self._earlier.run.max(initial=0))
        self._posterior = CurvePosterior(self._positions, runs, self._rng)
        self._current = reference
        self._since_change = discard  # the job has been at the reference before it is tuned
        self._patience = 0  # steps to hold before drift begins an exploration
        self._statistics = StepStatistics()
        self._explore()

    @property
    def settled(self) -> bool:
        return self.choice is not None

    def ask(self) -> tuple[int, int]:
        """The candidate to run next, and for how many steps. Asking twice changes nothing."""
        if self.choice is not None:
            return self.choice.index, _HELD_STEPS
        return self._plan, self._look_steps + (self.discard if self._plan != self._current else 0)

    def tell(
        self,
        index: int,
        times_s: ArrayLike,
        energies_j: ArrayLike,
        *,
        discard: int | None = None,
        steps_in_value: float = 1.0,
    ) -> None:
        """Add steps that ran at a candidate, in order; as many as there are, asked for or not.

        ``discard`` is how many steps of a transient come first, where the caller knows it. Steps
        without a positive time and energy do not count. Where each is the mean of a block of steps
        of the job, ``steps_in_value`` is how many.
        """
        raw = np.column_stack([np.asarray(times_s, float), np.asarray(energies_j, float)])
        self.steps += len(raw)
        self._statistics.steps_in_value = steps_in_value
        if index != self._current:
            self._current, self._since_change = index, 0
        transient = max(0, self.discard - self._since_change) if discard is None else discard
        self._since_change += len(raw)
        clean = raw[transient:]
        values = np.log(clean[(np.isfinite(clean) & (clean > 0)).all(axis=1)])
        if self.choice is None:
            self.exploring_steps += len(raw)
            self._used += len(raw)
            self._look(index, values)
        else:
            self._hold(index, values)

    def exclude(self, index: int) -> None:
        """Never ask for a candidate again, since it cannot be set."""
        if index == self.reference:
            raise ValueError("the reference cannot be excluded")
        self._allowed[index] = False
        if self.chosen == index:
            self.chosen = None
        if self.choice is not None and self.choice.index == index:
            self.restart(REFUSED)
        elif self.choice is None:
            self._decide()

    def settle(self) -> None:
        """End the exploration now, with the best that is known; before the reference, nothing.

        With a bound that is one that was looked at, and beside a busy host twice: fitted curves do
        not keep it, nor does a look at a busy moment.
        """
        means = self._statistics.means
        if self.choice is None and self.reference in means:
            samples, allowed = self._sample(), self._allowed.copy()
            if np.isfinite(self._objective.bound):
                known = [i for i, seen in means.items() if seen.looks >= self._least_looks]
                allowed &= np.isin(np.arange(len(allowed)), [self.reference, *known])
            judgement = self._objective.judge(samples, allowed)
            self._settle(samples, judgement, SettledReason.EXPLORATION_LIMIT)

    def confirm(self) -> None:
        """With a bound, plan to look again at the reference and the best that is known."""
        means = self._statistics.means
        if np.isinf(self._objective.bound) or self.choice is not None or len(means) < 2:
            return
        if self.reference in means:
            again = self._unconfirmed(self._objective.judge(self._sample(), self._allowed).chosen)
            if again is not None:
                self._plan = again

    def restart(self, reason: str) -> None:
        """Forget the steps of this run, and explore again."""
        self.changes = (*self.changes, TuningChange(self.steps, reason))
        # What earlier runs taught was of the job before the change.
        self._earlier = self._earlier.select(np.zeros(len(self._earlier.at), dtype=bool))
        self._explore()

    @property
    def tried(self) -> tuple[TriedSetting, ...]:
        seen = self._statistics
        factor = float(student(seen.degrees_of_freedom))
        result = []
        for index, means in sorted(seen.means.items()):
            half = factor * np.sqrt(seen.variances(index))
            low, mean, high = np.exp([means.mean - half, means.mean, means.mean + half])
            intervals = (Interval(*map(float, row)) for row in zip(mean, low, high, strict=True))
            result.append(TriedSetting(index, self.candidates[index], means.steps, *intervals))
        return tuple(result)

    @property
    def fitted(self) -> tuple[FittedPoint, ...]:
        """The fitted curves, with the overhead; empty before any step.

        While the choice is held they are fitted again when there are half as many steps more: steps
        at one setting change them little, and a fit takes as much processor time as a decision.
        """
        if not self._statistics.means:
            return ()
        most_steps = 1.0 if self.choice is None else _REFIT_FACTOR
        totals = self._objective.totals(self._sample(most_steps))
        time, energy = (_intervals(np.log(total)) for total in totals)
        return tuple(
            FittedPoint(index, *each)
            for index, each in enumerate(zip(self.candidates, time, energy, strict=True))
        )

    def knowledge(self, run: str = "") -> tuple[EarlierMean, ...]:
        """What later runs of the program may be given as ``earlier``."""
        return tuple(
            self._earlier_mean(index, seen, run)
            for index, seen in sorted(self._statistics.means.items())
        )

    def _earlier_mean(self, index: int, seen: MeanSteps, run: str) -> EarlierMean:
        log_time, log_energy = map(float, seen.mean)
        return EarlierMean(self.candidates[index], log_time, log_energy, seen.steps, run)

    def _explore(self) -> None:
        self.choice = None
        self._statistics = StepStatistics(self._statistics.steps_in_value)
        self._fitted: tuple[int, CurveSamples] | None = None  # and of how many steps
        self._used = 0
        self._detector: DriftDetector | None = None
        self._plan = self.reference
        self._changes_left = _MOST_CHANGES
        self._suspected: dict[int, Array] = {}  # looks that differ from those before them
        self._held = 0  # steps since it settled
        self._drift: Drift | None = None  # found, and waiting

    @property
    def _look_steps(self) -> int:
        steps = (self._statistics.noise.max() / _LOOK_DEVIATION) ** 2
        return int(np.clip(np.ceil(steps), _LEAST_LOOK_STEPS, _MOST_LOOK_STEPS))

    def _look(self, index: int, values: Array) -> None:
        if not len(values):
            return
        if self._changes_left and self._has_changed(index, values):
            # A busy host differs for a while, too: one look more has to confirm the change.
            if index not in self._suspected:
                self._suspected[index] = values
                self._plan = index
                return
            left = self._changes_left - 1
            self.restart(CHANGED_WHILE_EXPLORING)
            self._changes_left = left
        suspected = self._suspected.pop(index, None)
        if suspected is not None:
            self._statistics.add(index, suspected)
        self._statistics.add(index, values)
        self._decide()

    def _has_changed(self, index: int, values: Array) -> bool:
        before = self._statistics.means.get(index)
        if before is None:
            return False
        off = abs(np.median(values, axis=0) - before.mean)
        # The noise is that of this look or of those before, whichever is larger.
        own = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(2)
        noise = np.maximum(self._statistics.noise, own)
        # 1.57 is the variance of a median over that of a mean (π/2, normal noise).
        variance = 1.57 * noise**2 * (1 / len(values) + 1 / before.steps)
        variance = variance + 2 * self._statistics.look_variance
        return bool((off > _CHANGED_SHARE + _CHANGED_SIGMAS * np.sqrt(variance)).any())

    def _decide(self) -> None:
        """Settle, or plan the next look."""
        if self._allowed.sum() == 1:
            self._plan = int(np.argmax(self._allowed))
            if self._statistics.means:
                samples = self._sample()
                judgement = self._objective.judge(samples, self._allowed)
                self._settle(samples, judgement, SettledReason.ONLY_CANDIDATE)
            return
        if self.reference not in self._statistics.means:
            self._plan = self.reference
            return
        if len(self._statistics.means) == 1 and not len(self._earlier.at):
            self._plan = self._second_candidate()
            return
        samples = self._sample()
        judgement = self._objective.judge(samples, self._allowed)
        reason = self._reason_to_settle(judgement)
        again = None if self._is_at_limit else self._unconfirmed(judgement.chosen)
        if reason is not None and again is not None:
            self._plan = again
            return
        if reason is not None and len(self._earlier.at):
            # Steps of this run have to confirm what earlier ones say.
            if len(self._statistics.means) == 1 and judgement.chosen == self.reference:
                self._plan = self._second_candidate()
                return
            if judgement.chosen not in self._statistics.means:
                self._plan = judgement.chosen
                return
        if reason is not None:
            self._settle(samples, judgement, reason)
            return
        noise = self._statistics.noise
        cost = LookCost(self._look_steps, self.discard, self._current, noise)
        self._plan = next_look(samples, judgement, cost, self._rng)

    @property
    def _is_at_limit(self) -> bool:
        return self._used >= self._most_steps

    def _unconfirmed(self, chosen: int) -> int | None:
        """With a bound, the reference or the choice where it was not looked at often enough.

        A host that was busy during a look at the reference would hide how much slower the choice
        is, so that the reference is looked at twice.
        """
        if chosen == self.reference or np.isinf(self._objective.bound):
            return None
        means = self._statistics.means
        wanted = {self.reference: 2, chosen: self._least_looks}
        short = (i for i, looks in wanted.items() if i not in means or means[i].looks < looks)
        return next(short, None)

    @property
    def _least_looks(self) -> int:
        """How many looks at a choice tell whether it holds the bound: two beside a busy host."""
        seen = self._statistics
        is_busy = seen.look_variance[0] > 0 or seen.noise[0] > _STEADY_NOISE
        return 2 if is_busy else 1

    def _reason_to_settle(self, judgement: Judgement) -> SettledReason | None:
        is_free = np.isinf(self._objective.bound) and self._positions.axes > 1
        if judgement.probability >= (_WANTED_OVER_AXES if is_free else _WANTED_PROBABILITY):
            return SettledReason.CONFIDENT
        if judgement.expected_loss[judgement.chosen] <= _WORTHLESS_LOSS:
            return SettledReason.NO_GAIN_LEFT
        if self._is_at_limit:
            return SettledReason.EXPLORATION_LIMIT
        return None

    def _settle(self, samples: CurveSamples, judgement: Judgement, reason: SettledReason) -> None:
        index = judgement.chosen
        time, energy = (np.log(total) for total in self._objective.totals(samples))
        at, base = slice(index, index + 1), slice(self.reference, self.reference + 1)
        self.choice = TuningChoice(
            index,
            self.candidates[index],
            judgement.probability,
            self._objective.tolerance,
            reason,
            *_intervals(energy[:, at] - energy[:, base]),
            *_intervals(time[:, at] - time[:, base]),
        )
        self.chosen = index
        self._detector = None
        self._next_review = _FIRST_REVIEW_STEPS

    def _hold(self, index: int, values: Array) -> None:
        """Watch the steps at the choice; others, such as checks of the reference, add to means."""
        if not len(values) or self.choice is None:
            return
        if index != self.choice.index:
            self._statistics.add(index, values, is_look=False)
            return
        seen = self._statistics
        self._held += len(values)
        if self._detector is None:
            before = seen.means.get(index)
            mean, steps = (before.mean, before.steps) if before else (np.zeros(2), 0)
            self._detector = DriftDetector(mean, steps, seen.noise, seen.degrees_of_freedom)
        drift = self._detector.update(values)
        if drift is not None and self._drift is None:
            self._wait_for_drift(drift)
        if self._drift is not None:
            if self._held >= self._patience:
                self._explore_after_drift(self._drift)
            return
        seen.add(index, values, is_look=False)
        if seen.means[index].steps >= self._next_review:
            self._next_review = 2 * seen.means[index].steps
            self._review()

    def _wait_for_drift(self, drift: Drift) -> None:
        """Remember the drift; with a bound, hold the reference until the next exploration."""
        self._drift = drift
        is_waiting = self._held < self._patience
        if is_waiting and self.choice is not None and np.isfinite(self._objective.bound):
            one = Interval(1.0, 1.0, 1.0)
            self.choice = TuningChoice(
                self.reference,
                self.candidates[self.reference],
                0.0,
                self._objective.tolerance,
                SettledReason.UNSTEADY,
                one,
                one,
            )
            self.chosen = self.reference

    def _explore_after_drift(self, drift: Drift) -> None:
        if self._held < _WORTHWHILE_HELD * self._used:
            self._patience = 2 * max(self._patience, _WORTHWHILE_HELD * self._used)
        else:
            self._patience //= 2
        self.restart(drift.value)

    def _review(self) -> None:
        """Judge the choice again, by all steps at it, and leave it if it breaks the bound."""
        if self.choice is None or np.isinf(self._objective.bound):
            return
        samples = self._sample()
        judgement = self._objective.judge(samples, self._allowed)
        if judgement.chosen == self.choice.index:
            return
        if self._held_probability(samples, self.choice.index) < _HELD_PROBABILITY:
            self.changes = (
                *self.changes,
                TuningChange(self.steps, SettledReason.BOUND_CORRECTED.value),
            )
            self._settle(samples, judgement, SettledReason.BOUND_CORRECTED)

    def _held_probability(self, samples: CurveSamples, index: int) -> float:
        ratio = samples.log_time[:, index] - samples.log_time[:, self.reference]
        return float((ratio <= self._objective.log_bound).mean())

    def _second_candidate(self) -> int:
        """The allowed candidate in the middle of all axes, besides those that were seen."""
        axes = np.stack([self._positions.limit, self._positions.clock, self._positions.memory])
        low, high = axes.min(axis=1, keepdims=True), axes.max(axis=1, keepdims=True)
        share = (axes - low) / np.where(high > low, high - low, 1.0)
        distance = (((share - _FIRST_POSITION) * (high > low)) ** 2).sum(axis=0)
        distance[~self._allowed] = np.inf
        distance[list(self._statistics.means)] = np.inf
        return int(np.argmin(distance))

    def _sample(self, most_steps: float = 1.0) -> CurveSamples:
        """Samples of the curves by all steps; those from before at so many times the steps."""
        known, steps = self._fitted, self._statistics.steps
        if known is None or steps > most_steps * known[0]:
            self._fitted = known = (steps, self._fit())
        return known[1]

    def _fit(self) -> CurveSamples:
        posterior = self._posterior
        own = self._own_means()
        fit = posterior.fit(own)
        if len(self._earlier.at):
            both = posterior.fit(own.concatenate(self._earlier))
            gain = both.log_evidence - posterior.log_evidence(self._earlier)
            if gain >= fit.log_evidence - _CONTRADICTION:
                fit = both
        posterior.follow_clock(fit.clock)
        return fit.samples

    def _own_means(self) -> StepMeans:
        seen = self._statistics
        at = np.array(sorted(seen.means), dtype=np.int64)
        means = np.array([seen.means[i].mean for i in at])
        variances = np.array([seen.variances(i) for i in at])
        return StepMeans(at, np.zeros_like(at), *means.T, *variances.T)


def _earlier_means(
    earlier: Sequence[EarlierMean], candidates: Sequence[TuningCandidate]
) -> StepMeans:
    """Means of earlier runs at this run's candidates; the runs are numbered from 1."""
    place = {candidate: index for index, candidate in enumerate(candidates)}
    known = [mean for mean in earlier if mean.candidate in place and mean.steps > 0]
    number = {run: 1 + i for i, run in enumerate(dict.fromkeys(mean.run for mean in known))}
    steps = np.array([mean.steps for mean in known], dtype=float)
    prior = StepStatistics().noise
    return StepMeans(
        np.array([place[mean.candidate] for mean in known], dtype=np.int64),
        np.array([number[mean.run] for mean in known], dtype=np.int64),
        np.array([mean.log_time for mean in known], dtype=float),
        np.array([mean.log_energy for mean in known], dtype=float),
        *(noise**2 / steps + _EARLIER_DEVIATION**2 for noise in prior),
    )


def _intervals(logarithms: Array) -> list[Interval]:
    """Mean and 95 % interval of the exponential of each column of samples."""
    low, high = np.exp(np.quantile(logarithms, (0.025, 0.975), axis=0))
    mean = np.exp(logarithms.mean(axis=0))
    return [Interval(*map(float, row)) for row in zip(mean, low, high, strict=True)]

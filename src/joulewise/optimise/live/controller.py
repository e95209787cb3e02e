"""The state machine of live tuning: steps and energies in, the wanted setting out.

::

    warming up ─> exploring ─> proving (--prove) ─> holding <─> checking (--keep-checking)
                      ^                                │ the job drifts, or breaks the bound
                      └────────────────────────────────┘           any of them ─> ended

It has no clock, thread, file or GPU. Its owner tells it what happened, with the time, and asks
:meth:`Controller.update` for the wanted setting. A setting counts from the time that
:meth:`Controller.set_in_force` is told. The policy says which candidates to look at and chooses;
the controller turns steps into clean blocks (:mod:`joulewise.optimise.live.blocks`), waits for
their energy, and keeps the limits:

- A trial is the steps that the policy asked for, in whole blocks. Energies come a second or two
  late: the job goes on at that setting meanwhile, and these steps are used too.
- A candidate that breaks the bound is left after its trial at the latest, for the reference. So is
  any other while the steps of the job have stopped.
- Exploring stops after ``max_exploration_s`` and ``max_exploration_steps``, whichever is longer,
  and when what is left of the job is too short to use what another trial would teach.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from statistics import fmean, median, stdev
from typing import Final

from joulewise.data.tuning import (
    Tuning,
    TuningState,
)
from joulewise.optimise.live.blocks import BlockBuilder, StepBlock, TimedStep, known_since_ns
from joulewise.optimise.live.policy.choice import SettledReason
from joulewise.optimise.live.policy.tuning_policy import TuningPolicy
from joulewise.optimise.live.savings import (
    MAX_BLOCKS,
    PairedBlock,
    SavingCache,
    SavingProof,
)
from joulewise.optimise.live.tuning_options import TuningOptions
from joulewise.optimise.live.tuning_record import StepTotal, TuningRecord, TuningStatus
from joulewise.units import NS_PER_S

# The job is warm when three steps take as long as the three before, within 10 %; after so many
# steps and seconds at the latest. Chosen: what frameworks take to select kernels and fill caches.
_STEADY_SHARE: Final = 0.1
_MOST_WARM_UP_STEPS: Final = 20
_LEAST_WARM_UP_S: Final = 2.0
# A trial has at least so many blocks, so that their noise is seen.
_LEAST_TRIAL_BLOCKS: Final = 2
# What is left of the job is at least so many times a trial, or no further one is begun. Chosen:
# doubled, a job gives up the last of its trials earlier.
_PAYBACK: Final = 3.0
# With a bound, the last part of an exploration looks at what would be chosen, if it was not yet.
# Chosen: two or three trials of a minute. At 0.9, there is often none left.
_CONFIRMED_FROM: Final = 0.7
# A setting breaks the bound when it is slower by this much more, as a share: noise of a mean.
_BOUND_MARGIN: Final = 0.005
_BOUND_SIGMAS: Final = 2.5  # while holding, where many blocks are judged: besides their noise
_WATCHED_BLOCKS: Final = 8
_CHECK_BLOCKS: Final = 2  # at the reference in one check, and of the choice before and after it
# Share of the time since the last figure of that name in which the setting was the same (chosen): a
# check of 2 % of the steps in an epoch does not spoil its loss. Doubled, no epoch counts.
_LOGGED_SHARE: Final = 0.9
# Figures beyond it are of a training that has diverged. Chosen: squares of it can be summed.
_LARGEST_LOGGED: Final = 1e100
# While exploring without a step for so long, and for the time of so many of the longest recent
# ones, the reference is wanted (chosen): a program that evaluates for hours does not stay at the
# setting of a trial. Doubled, it stays twice as long; halved, a checkpoint changes the setting.
_LEAST_SILENCE_S: Final = 10.0
_SILENT_STEPS: Final = 10
_RECENT_STEPS: Final = 16
# A pause that came so often is usual, as the validation after each epoch: twice its time is waited.
_USUAL_PAUSES: Final = 2
_KEPT_PAUSES: Final = 5
# A reading that is so late does not come any more. The recorder writes once a second.
_LATEST_ENERGY_S: Final = 10.0
# Blocks in a row without an energy, after which the tuning ends (chosen). Doubled, a job stays at
# settings of which nothing is known for twice as long.
_MOST_LOST_BLOCKS: Final = 5

_REASON_TEXTS: Final = {
    SettledReason.CONFIDENT: "it is the best with high probability",
    SettledReason.NO_GAIN_LEFT: "no other setting can be better by more than it costs to look",
    SettledReason.EXPLORATION_LIMIT: "it is the best known at the limit of exploration",
    SettledReason.ONLY_CANDIDATE: "no other setting can be set",
    SettledReason.BOUND_CORRECTED: "the setting before broke the bound on the slowdown",
    SettledReason.UNSTEADY: "it is the best known, and the job changes too often to look on",
}


@dataclass(frozen=True)
class TuningDecision:
    """The candidate that is wanted in force; None leaves all as it is without the tuner."""

    index: int | None
    state: TuningState


@dataclass
class _Trial:
    """The steps that the policy asked for at one candidate, as far as they are known."""

    index: int
    wanted: int
    begun_ns: int
    steps: int = 0  # in completed blocks, their energy known or not
    blocks: int = 0
    times_s: list[float] = field(default_factory=list)
    energies_j: list[float] = field(default_factory=list)

    @property
    def has_run(self) -> bool:
        """Whether its steps have been run, measured or not."""
        return self.steps >= self.wanted and self.blocks >= _LEAST_TRIAL_BLOCKS

    @property
    def is_over(self) -> bool:
        return self.has_run and len(self.times_s) >= self.blocks_needed

    @property
    def blocks_needed(self) -> int:
        """How many of its first blocks have the steps that were asked for."""
        mean = self.steps / max(self.blocks, 1)
        return max(_LEAST_TRIAL_BLOCKS, math.ceil(self.wanted / max(mean, 1.0) - 1e-9))


@dataclass(frozen=True)
class _InForce:
    index: int | None
    since_ns: int


class Controller:
    """Live tuning of one job; see the head of this module. Times are of the monotonic clock (ns).

    ``starting_index`` is the candidate that equals the setting before the tuner, if one does: its
    steps count before anything was set.
    """

    def __init__(
        self,
        policy: TuningPolicy,
        options: TuningOptions,
        *,
        started_ns: int,
        starting_index: int | None = None,
    ) -> None:
        self.policy = policy
        self.state = TuningState.WARMING_UP
        self.reason = "the job is warming up"
        self.chosen: int | None = None
        self._options = options
        self._started_ns = started_ns
        self._check_left = self._after_check = 0
        self._blocks = BlockBuilder(options.shortest_block_s, options.settle_s)
        self._in_force = [_InForce(starting_index, started_ns)]
        self._last_step_ns: int | None = None  # when the last one ended
        self._recent_ns: deque[int] = deque(maxlen=_RECENT_STEPS)  # the time of steps
        self._pauses_ns: deque[int] = deque(maxlen=_KEPT_PAUSES)  # longer than usual steps
        self._record = TuningRecord(policy, options, started_ns, starting_index)
        self._pending: dict[StepBlock, int | None] = {}  # since when, None: it was not seen yet
        self._warm_up: list[TimedStep] = []
        self._end_forecast_ns: int | None = None
        self._epochs: tuple[int, int | None] = (0, None)  # those done, and their number
        self._epochs_since = (0, started_ns)  # how many were done at a time in this training
        self._exploration_ns = started_ns
        self._explored_before = 0  # steps of earlier explorations
        self._trial: _Trial | None = None
        self._last_tried: int | None = None
        self._longest_trial_s = 0.0
        self._totals: dict[int, StepTotal] = defaultdict(StepTotal)
        self._watched: deque[float] = deque(maxlen=_WATCHED_BLOCKS)
        self._broken: set[int] = set()
        self._seen_changes = 0
        self._lost_blocks = 0
        self._logged_ns: dict[str, int] = {}  # when each figure was logged last
        self._begin_proof()

    # What happened

    def set_in_force(self, index: int | None, at_ns: int) -> None:
        """All GPUs have this candidate's setting from now on; None: the one before the tuner."""
        self._in_force.append(_InForce(index, at_ns))

    def refuse(self, index: int, at_ns: int, why: str) -> None:
        """The setting could not be set. Without the reference, the tuning ends."""
        if index == self.policy.reference:
            self.end(at_ns, f"the reference could not be set: {why}", is_early=True)
            return
        self._record.add_note(f"{self._record.setting(index)} could not be set: {why}")
        self._exclude(index, at_ns)

    def add_steps(self, steps: Iterable[TimedStep]) -> None:
        """Add steps that have ended since the last call, in the order in which they ended."""
        for step in steps:
            self._note_pause(step)
            in_force = self._in_force_at(step.end_ns)
            self._record.add_step(step, in_force.index)
            if self.state is TuningState.ENDED:
                continue
            if self.state is TuningState.WARMING_UP:
                self._warm_up.append(step)
                continue
            block = self._blocks.add(step, in_force.index, in_force.since_ns)
            if block is not None:
                self._collect(block)

    def pending_blocks(self) -> tuple[StepBlock, ...]:
        """The blocks whose energy is not known yet, oldest first."""
        return tuple(self._pending)

    def add_energy(self, block: StepBlock, energy_j: float | None) -> None:
        """The energy of a pending block's windows; None or no positive number: it is not known."""
        if block not in self._pending:
            return
        del self._pending[block]
        is_known = energy_j is not None and math.isfinite(energy_j) and energy_j > 0
        self._lost_blocks = 0 if is_known else self._lost_blocks + 1
        self._measure(block, energy_j if is_known else None)

    def add_logged(self, name: str, value: float, t_ns: int) -> None:
        """A figure that the program has logged (loss, accuracy).

        It tells of the time since the last one of that name, such as an epoch: it is taken for a
        candidate that was in force for nearly all of it, and else for none.
        """
        since_ns = self._logged_ns.get(name, self._started_ns)
        self._logged_ns[name] = t_ns
        index = self._in_force_at(t_ns).index
        if index is None or not math.isfinite(value):
            return
        if abs(value) > _LARGEST_LOGGED:
            self._record.add_note(f"{name} reached {value:.1g}; such values are not compared")
            return
        if self._in_force_ns(index, since_ns, t_ns) >= _LOGGED_SHARE * (t_ns - since_ns):
            self._record.add_logged(name, value, index)

    def set_epochs(self, done: int, total: int | None, now_ns: int) -> None:
        """How many epochs are done, and of how many: the rest of the job is forecast from it.

        It may be called at any time, and counts when it is new.
        """
        if (done, total) == self._epochs:
            return  # only the end of an epoch tells how long one takes
        if done < self._epochs[0]:  # of another training
            self._epochs_since = (done, now_ns)
        self._epochs = (done, total)
        first, since_ns = self._epochs_since
        if total is None or done <= first:
            self._end_forecast_ns = None
            return
        each_ns = (now_ns - since_ns) / (done - first)
        self._end_forecast_ns = round(now_ns + max(total - done, 0) * each_ns)

    def end(self, now_ns: int, reason: str = "", *, is_early: bool = False) -> None:
        """The job has ended, or the tuning has to; nothing is wanted from here on.

        ``reason`` says why nothing was chosen, and ``is_early`` that it is why the tuning ends
        while the job goes on.
        """
        if self.state is TuningState.ENDED:
            return
        self._tell_trial()
        was_settled = self.chosen is not None
        was_exploring = self.state is TuningState.EXPLORING
        self.state = TuningState.ENDED
        self._record.enter(self.state, None, now_ns)
        self._pending.clear()
        if self._is_proof_open():
            blocks = len(self._proof.blocks)
            self._record.add_note(
                f"--prove did not come to its end: {blocks} blocks of steps were compared, which "
                "do not tell the saving to 1 %; a longer run would"
            )
        if is_early:
            self._record.add_early_end(now_ns, reason)
        if not was_settled:
            self.reason = reason or "the job ended before a setting was chosen"
        elif was_exploring and is_early:  # again: the choice before does not hold any more
            self.reason = reason

    def begin_anew(self, now_ns: int, reason: str) -> None:
        """Forget all steps so far, and explore: those from now on are of another kind."""
        self._warm_up.clear()
        self._pending.clear()
        self._recent_ns.clear()
        self._pauses_ns.clear()
        if self.state not in {TuningState.WARMING_UP, TuningState.ENDED}:
            self.policy.restart(reason)
            self._explore(now_ns, reason)

    # What to do

    def update(self, now_ns: int) -> TuningDecision:
        """The wanted setting, now. Call it after each of the above, and about once a second."""
        self._record.pass_time(now_ns)
        self._drop_late(now_ns)
        if self.state is TuningState.WARMING_UP and self._is_warm():
            self._explore(now_ns)
        if self.state is TuningState.EXPLORING:
            self._advance_exploration(now_ns)
        elif self.state in {TuningState.PROVING, TuningState.HOLDING, TuningState.CHECKING}:
            self._advance_holding(now_ns)
        wanted = self._wanted(now_ns)
        self._record.enter(self.state, wanted, now_ns)
        return TuningDecision(wanted, self.state)

    def _wanted(self, now_ns: int) -> int | None:
        if self.state in {TuningState.WARMING_UP, TuningState.ENDED}:
            return None
        reference = self.policy.reference
        if self.state is TuningState.EXPLORING:
            trial = self._trial
            if trial is None or self._is_silent(now_ns):
                return reference
            return reference if trial.has_run and self._breaks_bound(trial.index) else trial.index
        if self.state is TuningState.CHECKING:
            return reference
        if self.state is TuningState.PROVING and not SavingProof.is_choice(self._proof_place):
            return reference
        return self.chosen

    def _note_pause(self, step: TimedStep) -> None:
        pause_ns = step.start_ns - (self._last_step_ns or step.start_ns)
        if pause_ns > self._least_silence_ns:
            self._pauses_ns.append(pause_ns)
        self._last_step_ns = step.end_ns
        self._recent_ns.append(step.end_ns - known_since_ns(step))

    @property
    def _least_silence_ns(self) -> int:
        longest_ns = max(self._recent_ns, default=0)
        return max(round(_LEAST_SILENCE_S * NS_PER_S), _SILENT_STEPS * longest_ns)

    def _is_silent(self, now_ns: int) -> bool:
        """Whether no step has ended for longer than steps and usual pauses take."""
        patience_ns = self._least_silence_ns
        if len(self._pauses_ns) >= _USUAL_PAUSES:
            patience_ns = max(patience_ns, round(2 * median(self._pauses_ns)))
        return now_ns - (self._last_step_ns or now_ns) > patience_ns

    # Warming up

    def _is_warm(self) -> bool:
        steps = self._warm_up
        if len(steps) < 2:
            return False
        elapsed_s = (steps[-1].end_ns - steps[0].start_ns) / NS_PER_S
        if elapsed_s < _LEAST_WARM_UP_S and len(steps) < 10 * _MOST_WARM_UP_STEPS:
            return False
        if len(steps) >= _MOST_WARM_UP_STEPS:
            return True
        times = [step.end_ns - step.start_ns for step in steps[-6:]]
        before, now = sorted(times[:3]), sorted(times[3:])
        return len(times) == 6 and abs(now[1] / max(before[1], 1) - 1) <= _STEADY_SHARE

    # Exploring

    def _explore(self, now_ns: int, reason: str = "") -> None:
        """Begin an exploration; ``reason`` where it is not the first."""
        if reason:
            self._record.add_restart(now_ns, reason)
            self.reason = f"it explores again: {reason}"
            self._blocks.forget()
        else:
            self.reason = "it is looking for the best setting"
        self._seen_changes = len(self.policy.changes)
        self._exploration_ns = now_ns
        self._explored_before = self._record.exploring_steps
        self._totals.clear()
        self._watched.clear()
        self._broken.clear()
        self._trial = None
        self._blocks.shortest_block_s = self._options.shortest_block_s
        self._begin_proof()
        self.state = TuningState.EXPLORING

    def _advance_exploration(self, now_ns: int) -> None:
        trial = self._trial
        if trial is not None and not trial.is_over and not self.policy.settled:
            self._stop_at_limit(now_ns, is_within_trial=True)
            return
        self._tell_trial()
        if len(self.policy.changes) > self._seen_changes and not self.policy.settled:
            self._explore(now_ns, _change_text(self.policy.changes[-1].reason))
        if self.policy.settled and self.policy.choice is not None:
            choice = self.policy.choice
            self._settle(choice.index, _REASON_TEXTS[choice.reason], now_ns)
            return
        if not self._stop_at_limit(now_ns, is_within_trial=False):
            self._begin_trial(now_ns)

    def _begin_trial(self, now_ns: int) -> None:
        if self._explored_share(now_ns) >= _CONFIRMED_FROM:
            self.policy.confirm()
        for _ in self.policy.candidates:
            index, steps = self.policy.ask()
            is_again = index == self._last_tried
            if self.policy.settled or not is_again or not self._breaks_bound(index):
                break
            self.policy.exclude(index)
        self._last_tried = index
        self._trial = _Trial(index, steps, now_ns)

    def _tell_trial(self) -> None:
        trial, self._trial = self._trial, None
        if trial is None:
            return
        self._longest_trial_s = max(
            self._longest_trial_s, (self._record.last_ns - trial.begun_ns) / NS_PER_S
        )
        if trial.times_s:
            steps = trial.steps / max(trial.blocks, 1)
            self.policy.tell(
                trial.index, trial.times_s, trial.energies_j, discard=0, steps_in_value=steps
            )

    def _explored_share(self, now_ns: int) -> float:
        """How much of the exploration is over, of the longer of its limits: 1 at its end."""
        explored_s = (now_ns - self._exploration_ns) / NS_PER_S
        steps = self._record.exploring_steps - self._explored_before
        options = self._options
        return min(explored_s / options.max_exploration_s, steps / options.max_exploration_steps)

    def _stop_at_limit(self, now_ns: int, *, is_within_trial: bool) -> bool:
        """Settle on the best that is known, where exploring has gone on for long enough."""
        is_long = self._explored_share(now_ns) >= 1
        left_s = self._left_s(now_ns)
        is_late = left_s is not None and left_s < _PAYBACK * self._longest_trial_s
        if not is_long and (not is_late or is_within_trial):
            return False
        self._tell_trial()
        self.policy.settle()
        choice = self.policy.choice
        index = self.policy.reference if choice is None else choice.index
        why = "exploring may take no longer" if is_long else "too little of the job is left"
        self._settle(index, f"it is the best that is known; {why}", now_ns)
        return True

    def _breaks_bound(self, index: int) -> bool:
        bound = self._bound
        base, total = self._totals.get(self.policy.reference), self._totals.get(index)
        if index == self.policy.reference or bound is None or not base or not total:
            return False
        return total.step_time_s > bound * (1 + _BOUND_MARGIN) * base.step_time_s

    @property
    def _bound(self) -> float | None:
        bounds = (self._options.max_slowdown, self.policy.metric.max_slowdown)
        return min((bound for bound in bounds if bound is not None), default=None)

    def _exclude(self, index: int, now_ns: int) -> None:
        self.policy.exclude(index)
        self._broken.add(index)
        if self._trial is not None and self._trial.index == index:
            self._trial = None
        is_chosen = self.chosen == index
        if is_chosen:
            self.chosen = None
        if is_chosen and self.state not in {TuningState.WARMING_UP, TuningState.ENDED}:
            self._explore(now_ns, "the setting could not be held")
        self._seen_changes = len(self.policy.changes)

    # Holding

    def _settle(self, index: int, reason: str, now_ns: int) -> None:
        self._trial = None
        if self.chosen != index:
            self._begin_proof()
            self._check_blocks.clear()
        self.chosen, self.reason = index, reason
        self._watched.clear()
        self._seen_changes = len(self.policy.changes)
        self._record.add_settled(now_ns, index)
        self._hold()

    def _is_proof_open(self) -> bool:
        """Whether a proof is wanted of the choice, and not over."""
        has_choice = self.chosen is not None and self.chosen != self.policy.reference
        return self._options.prove and has_choice and not self._proof.is_finished

    def _hold(self) -> None:
        is_proving = self._is_proof_open()
        self.state = TuningState.PROVING if is_proving else TuningState.HOLDING
        options = self._options
        long_s = max(options.proof_block_s, options.shortest_block_s)
        self._blocks.shortest_block_s = long_s if is_proving else options.shortest_block_s

    def _advance_holding(self, now_ns: int) -> None:
        policy = self.policy
        if len(policy.changes) > self._seen_changes and not policy.settled:
            self._explore(now_ns, _change_text(policy.changes[-1].reason))
            self._advance_exploration(now_ns)
            return
        if policy.choice is not None and policy.choice.index != self.chosen:
            self._settle(policy.choice.index, _REASON_TEXTS[policy.choice.reason], now_ns)
        if self._is_bound_lost():
            policy.restart("the bound on the slowdown is broken")
            self._explore(now_ns, "the bound on the slowdown is broken")
            self._advance_exploration(now_ns)
            return
        if self.state is TuningState.PROVING and self._proof.is_finished:
            self._hold()
        elif self.state is TuningState.CHECKING and self._check_left <= 0:
            self.state = TuningState.HOLDING
            self._after_check = _CHECK_BLOCKS
        elif self.state is TuningState.HOLDING and self._is_check_due():
            self.state = TuningState.CHECKING
            self._check_left = _CHECK_BLOCKS
            self._add_held_to_checks()

    def _add_held_to_checks(self) -> None:
        """The latest blocks at the choice, without those that count already."""
        known_s = self._check_blocks[-1].end_s if self._check_blocks else -math.inf
        held = [block for block in self._latest_held if block.start_s >= known_s]
        self._check_blocks.extend(held)
        self._latest_held.clear()

    def _is_bound_lost(self) -> bool:
        """Whether the choice is slower than the bound by more than the noise of its blocks."""
        bound, base = self._bound, self._totals.get(self.policy.reference)
        if bound is None or not base or self.chosen == self.policy.reference:
            return False
        if len(self._watched) < 3:
            return False
        error_s = stdev(self._watched) / math.sqrt(len(self._watched))
        least_s = fmean(self._watched) - _BOUND_SIGMAS * error_s
        return least_s > bound * (1 + _BOUND_MARGIN) * base.step_time_s

    def _is_check_due(self) -> bool:
        share = self._options.keep_checking
        if share <= 0 or self.chosen == self.policy.reference or self._after_check > 0:
            return False
        if len(self._latest_held) < _CHECK_BLOCKS:
            return False
        checked, held = map(self._record.steps_in, (TuningState.CHECKING, TuningState.HOLDING))
        return checked + self._steps_of_check() <= share * (held + checked)

    def _steps_of_check(self) -> float:
        """How many steps a check takes: its blocks, and the transient before them."""
        total = self._record.measured[self.policy.reference]
        if not total.steps:
            return 0.0
        options = self._options
        time_s = _CHECK_BLOCKS * options.shortest_block_s + options.settle_s
        return _CHECK_BLOCKS + 2 + time_s / total.step_time_s

    def _begin_proof(self) -> None:
        options = self._options
        self._proof = SavingProof(options.proof_target, options.most_proof_blocks)
        self._proof_place = 0
        self._check_blocks: deque[PairedBlock] = deque(maxlen=MAX_BLOCKS)
        self._latest_held: deque[PairedBlock] = deque(maxlen=_CHECK_BLOCKS)
        self._checks = SavingCache()
        self._check_left = self._after_check = 0

    # Blocks

    def _collect(self, block: StepBlock) -> None:
        """A completed block: what its time says, while its energy is awaited."""
        self._pending[block] = None
        trial = self._trial
        self._totals[block.index].steps += block.steps
        self._totals[block.index].time_s += block.time_s
        if trial is not None and block.index == trial.index and block.end_ns > trial.begun_ns:
            trial.steps += block.steps
            trial.blocks += 1
        if self.state is TuningState.CHECKING and block.index == self.policy.reference:
            self._check_left -= 1
        if self.state in {TuningState.HOLDING, TuningState.PROVING} and block.index == self.chosen:
            self._watched.append(block.step_time_s)
        is_choice = block.index == self.chosen
        if self.state is TuningState.PROVING and self._is_wanted_by_proof(block):
            self._proof_place += 1
        elif self.state is TuningState.HOLDING and is_choice and self._after_check > 0:
            self._after_check -= 1

    def _is_wanted_by_proof(self, block: StepBlock) -> bool:
        is_choice = SavingProof.is_choice(self._proof_place)
        return block.index == (self.chosen if is_choice else self.policy.reference)

    def _measure(self, block: StepBlock, energy_j: float | None) -> None:
        trial = self._trial
        is_in_trial = (
            trial is not None and block.index == trial.index and block.end_ns > trial.begun_ns
        )
        if energy_j is None:
            if trial is not None and is_in_trial:
                trial.steps -= block.steps
                trial.blocks -= 1
            return
        self._record.measured[block.index].add(block, energy_j)
        if block.end_ns >= self._exploration_ns:
            self._totals[block.index].measured += block.steps
            self._totals[block.index].energy_j += energy_j
        time_s, step_j = block.step_time_s, energy_j / block.steps
        if trial is not None and is_in_trial:
            trial.times_s.append(time_s)
            trial.energies_j.append(step_j)
        elif block.index not in self._broken and block.end_ns >= self._exploration_ns:
            self.policy.tell(block.index, [time_s], [step_j], discard=0, steps_in_value=block.steps)
        self._compare(block, time_s, step_j)

    def _compare(self, block: StepBlock, time_s: float, step_j: float) -> None:
        """Give a block of the reference or the choice to the proof or to the checks."""
        is_choice = block.index == self.chosen
        if self.chosen == self.policy.reference or not (
            is_choice or block.index == self.policy.reference
        ):
            return
        span_s = (self._record.seconds(block.start_ns), self._record.seconds(block.end_ns))
        paired = PairedBlock(*span_s, is_choice, time_s, step_j, self._options.overhead_w)
        state = self._record.state_at(block.end_ns)
        if state is TuningState.PROVING:
            self._proof.add(paired)
        elif state is TuningState.CHECKING and not is_choice:
            self._check_blocks.append(paired)
        elif state is TuningState.HOLDING and is_choice:
            self._latest_held.append(paired)
            if self._check_blocks and not self._check_blocks[-1].is_choice:
                self._check_blocks.append(paired)

    def _drop_late(self, now_ns: int) -> None:
        for block, since_ns in tuple(self._pending.items()):
            if since_ns is None:  # complete now, however long ago its steps ended
                self._pending[block] = now_ns
            elif now_ns - since_ns > _LATEST_ENERGY_S * NS_PER_S:
                self.add_energy(block, None)
        if self._lost_blocks >= _MOST_LOST_BLOCKS and self.state is not TuningState.ENDED:
            self.end(now_ns, "the energy of the steps could not be read", is_early=True)

    # Account

    def tuning(self) -> Tuning:
        """The record of the tuning up to now, as in tuning.json."""
        is_compared = self.chosen is not None and self.chosen != self.policy.reference
        proof = self._proof.judge() if is_compared else None
        checks = self._checks.of(self._check_blocks) if is_compared else None
        status = TuningStatus(
            self.state, self.reason, self.chosen, self._bound, self._totals, proof, checks
        )
        return self._record.make(status)

    def _in_force_ns(self, index: int, start_ns: int, end_ns: int) -> int:
        """For how long of a time this candidate was in force."""
        first = bisect_right(self._in_force, start_ns, key=attrgetter("since_ns")) - 1
        total_ns, until_ns = 0, end_ns
        for each in reversed(self._in_force[max(first, 0) :]):
            if each.index == index:
                total_ns += max(until_ns - max(each.since_ns, start_ns), 0)
            until_ns = min(until_ns, each.since_ns)
        return total_ns

    def _in_force_at(self, t_ns: int) -> _InForce:
        at = bisect_right(self._in_force, t_ns, key=attrgetter("since_ns"))
        return self._in_force[max(at - 1, 0)]

    def _left_s(self, now_ns: int) -> float | None:
        """Seconds until the forecast end of the job; None where it is not known."""
        end_ns = self._end_forecast_ns
        return None if end_ns is None else max((end_ns - now_ns) / NS_PER_S, 0.0)


_CHANGE_TEXTS: Final = {
    "time_drift": "the time of a step has changed",
    "energy_drift": "the energy of a step has changed",
    "changed_while_exploring": "the job changed while it explored",
    "refused": "the setting could not be held",
}


def _change_text(reason: str) -> str:
    return _CHANGE_TEXTS.get(reason, reason)

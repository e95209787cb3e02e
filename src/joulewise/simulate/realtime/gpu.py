"""One simulated GPU in real time, and the CPU that shares a superchip's module with it.

What the GPU does is computed ahead of time, and again whenever something changes. A stretch of time
has one owner (a job, or nobody) and one set of controls. The GPU holds the current stretch and,
when that nears its end, the one that follows if nothing happens, so that a client never reads past
what is known.

The CPU and its memory draw by the load of this machine's own CPUs: the command runs there, since
only the GPU is simulated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from joulewise.simulate.model import BoardUnit, ControlSettings, Load, Module
from joulewise.simulate.physics.board_state import BETWEEN_STEPS, State, rest
from joulewise.simulate.physics.integrate import play
from joulewise.simulate.timeline import Timeline, concat, join
from joulewise.simulate.workloads import StepSequence
from joulewise.units import NS_PER_MS, NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

NEVER_DUE_NS = 1 << 62
# All chosen. A stretch is computed up to _AHEAD_NS ahead under load and _IDLE_AHEAD_NS when idle
# (as a rule one piece, which is cheap to cut), and the next one _MARGIN_NS before it ends: that is
# how late the engine may be before clients read what is not known yet. Twice as much ahead is
# computed in vain as often as something changes.
_AHEAD_NS = NS_PER_S
_IDLE_AHEAD_NS = NS_PER_S // 2
_MARGIN_NS = NS_PER_S // 4
# How long a job runs before another has its turn. Chosen: some milliseconds, as a driver's time
# slices. Twice as long, programs that share a GPU take turns half as often.
_TURN_NS = NS_PER_S // 100


@dataclass(eq=False)
class Job:
    """Steps that ``owner`` has requested, and those of ``later`` after them.

    The factors are those of its run (see ``play``). Its turn on the GPU began at ``turn_ns``.
    """

    owner: Any
    load: Load
    remaining: int
    time_factor: float = 1.0
    power_factor: float = 1.0
    later: Iterator[StepSequence] | None = None
    turn_ns: int = 0
    start_ns: int = 0
    end_ns: int = 0

    @cached_property
    def successor(self) -> Job | None:
        part = next(self.later, None) if self.later else None
        return replace(self, load=part.load, remaining=part.steps) if part else None

    @cached_property
    def step_ns(self) -> int:
        """How long a step takes at least."""
        return round(self.load.time_s * self.time_factor * NS_PER_S)


class _Stretch(NamedTuple):
    """A stretch of time with one job (None: idle): the states at both ends, and its timeline."""

    begin: State
    job: Job | None
    timeline: Timeline
    end: State

    @property
    def steps(self) -> int:
        return len(self.timeline.step_ends_ns)

    @property
    def end_ns(self) -> int:
        return self.timeline.end_ns


class RealtimeGpu:
    """A GPU on which jobs take turns of whole steps, about 10 ms of them; without one it idles.

    Call :meth:`on_due` whenever ``due_ns`` has come, before any other method for that moment.
    """

    def __init__(
        self,
        unit: BoardUnit,
        controls: ControlSettings,
        start_ns: int,
        publish: Callable[[Timeline], None],
    ) -> None:
        self.unit = unit
        self.contexts = 0
        self._controls = controls
        self._publish = publish
        self._waiting: deque[Job] = deque()
        self._past: list[Timeline] = []
        self._accounted_s: dict[Any, tuple[float, float]] = {}
        state = rest(unit, start_ns)
        self._now = _Stretch(state, None, *self._play(state, None, start_ns, 0))
        self._next: _Stretch | None
        self.due_ns: int
        self._continue_from(state, None)

    def on_due(self) -> Job | None:
        """Compute what comes next, or go over to it; the job that this finished, if any."""
        if self._next is None:
            self._publish(self._plan_next())
            return None
        ended = self._now
        job = ended.job
        self._retire(ended.timeline, job)
        follower = None
        if job is not None:
            job.remaining -= ended.steps
            follower = job if job.remaining else job.successor
            if follower is not None and follower is not self._next.job:
                self._waiting.append(follower)
        self._begin(self._next)
        if job is None or follower is not None:
            return None
        job.end_ns = ended.end_ns
        return job

    def submit(self, job: Job, now_ns: int) -> None:
        """Start the job after the current step, in turn with others."""
        self._waiting.append(job)
        running = self._now.job
        state = self._cut(now_ns)
        self._continue_from(state, running or self._waiting[0])

    def withdraw(self, owner: object, now_ns: int) -> None:
        """Abandon the jobs of an owner, in the middle of a step if need be."""
        self._waiting = deque(job for job in self._waiting if job.owner is not owner)
        running = self._now.job
        state = self._cut(now_ns)
        if running is not None and running.owner is owner:
            _, state = self._play(state, None, now_ns, 0)
            running = self._waiting[0] if self._waiting else None
        self._continue_from(state, running)

    def set_controls(self, controls: ControlSettings, now_ns: int) -> None:
        """Run at other control settings from now on."""
        if controls != self._controls:
            state = self._cut(now_ns)
            self._controls = controls
            self._continue_from(state, self._now.job)

    def attach(self, contexts: int, now_ns: int) -> None:
        """Add to the number of processes that have the GPU open; negative where some left."""
        state = self._cut(now_ns)
        self.contexts += contexts
        self._continue_from(state, self._now.job)

    def energy_j(self, now_ns: int) -> float:
        return float(self._now.timeline.energy_at(now_ns))

    def take_timeline(self) -> Timeline:
        """What the GPU did since the last call, up to the end of the current stretch."""
        parts, self._past = [*self._past, self._now.timeline], []
        return concat(parts)

    def account(self, owner: object) -> None:
        """Count from now on how long the GPU and its memory are busy with this owner's jobs."""
        self._accounted_s.setdefault(owner, (0.0, 0.0))

    def accounted_s(self, owner: object, now_ns: int) -> tuple[float, float]:
        """How long the GPU and its memory were busy with an accounted owner's jobs; else 0."""
        counted_s = self._accounted_s.get(owner, (0.0, 0.0))
        now = self._now
        if owner in self._accounted_s and now.job is not None and now.job.owner == owner:
            return _add_busy(counted_s, now.timeline, now_ns)
        return counted_s

    def stop_account(self, owner: object) -> None:
        """Count no longer for this owner."""
        self._accounted_s.pop(owner, None)

    def _retire(self, timeline: Timeline, job: Job | None) -> None:
        self._past.append(timeline)
        if job is not None and job.owner in self._accounted_s:
            counted_s = self._accounted_s[job.owner]
            self._accounted_s[job.owner] = _add_busy(counted_s, timeline, timeline.end_ns)

    def _cut(self, now_ns: int) -> State:
        """The state now; what was computed beyond is void."""
        now = self._now
        if now.job is None and now_ns > now.end.piece_ns:  # an idle board goes on as it is
            timeline, state = Timeline(now.timeline.pieces, now_ns), now.end.rewind(now_ns)
        else:
            timeline, state = self._play(now.begin, now.job, now_ns, NEVER_DUE_NS)
        self._retire(timeline, now.job)
        if now.job is not None:
            now.job.remaining -= len(timeline.step_ends_ns)
        return state

    def _continue_from(self, state: State, job: Job | None) -> None:
        others = any(other is not job for other in self._waiting)
        self._begin(self._stretch(state, job, job.remaining if job else 0, others=others))
        timeline = self._now.timeline
        if self._now.end_ns < state.t_ns + _IDLE_AHEAD_NS:
            after = self._plan_next()
            timeline = Timeline(join([timeline.pieces, after.pieces]), after.end_ns)
        self._publish(timeline)

    def _begin(self, stretch: _Stretch) -> None:
        self._now, self._next = stretch, None
        self.due_ns = stretch.end_ns - _MARGIN_NS
        job = stretch.job
        if job is not None and job in self._waiting:
            self._waiting.remove(job)
        if job is not None and not job.start_ns:
            job.start_ns = stretch.begin.t_ns

    def _plan_next(self) -> Timeline:
        """Compute what follows: the same job if its step is not over, else the next in turn."""
        now = self._now
        order, remaining = [*self._waiting], 0
        if now.job is not None:
            remaining = now.job.remaining - now.steps
            follower = now.job if remaining else now.job.successor
            order += [follower] if follower else []
        within_step = now.end.phase != BETWEEN_STEPS
        job = now.job if within_step else order[0] if order else None
        if job is not None and job is not now.job:
            remaining = job.remaining
        self._next = self._stretch(now.end, job, remaining, others=len(order) > 1)
        self.due_ns = now.end_ns
        return self._next.timeline

    def _stretch(self, state: State, job: Job | None, steps: int, *, others: bool) -> _Stretch:
        if job is not None and job is not self._now.job:
            job.turn_ns = state.t_ns
        if job is not None and others:
            left_ns = job.turn_ns + _TURN_NS - state.t_ns
            steps = min(steps, max(1, left_ns // job.step_ns))
        until_ns = state.t_ns + (_AHEAD_NS if job else _IDLE_AHEAD_NS)
        return _Stretch(state, job, *self._play(state, job, until_ns, steps))

    def _play(
        self, state: State, job: Job | None, until_ns: int, steps: int
    ) -> tuple[Timeline, State]:
        return play(
            self.unit,
            state,
            job.load if job else None,
            self._controls,
            until_ns=until_ns,
            steps=steps,
            contexts=self.contexts,
            time_factor=job.time_factor if job else 1.0,
            power_factor=job.power_factor if job else 1.0,
        )


def _add_busy(
    counted_s: tuple[float, float], timeline: Timeline, end_ns: int
) -> tuple[float, float]:
    """Add the time (s) that GPU and memory were busy from the timeline's start to ``end_ns``."""
    if not len(timeline.pieces):  # cut at the moment at which it began
        return counted_s
    gpu_s, memory_s = counted_s
    span_ns = [timeline.start_ns, min(end_ns, timeline.end_ns)]
    for_gpu, for_memory = (timeline.busy_s_at(span_ns, name) for name in ("busy", "memory_busy"))
    return gpu_s + float(for_gpu[1] - for_gpu[0]), memory_s + float(for_memory[1] - for_memory[0])


PERIOD_NS: Final = 50 * NS_PER_MS
"""How often the load is read. Chosen: five ticks of the kernel's clock, and half a sensor's period;
with twice as much, the power follows the load later by as much."""

# A new power holds from a little later on, so that a client never reads a future that changes.
# Chosen: more than a busy machine takes to come back to the engine, as a rule.
_LEAD_NS: Final = 50 * NS_PER_MS
_IDLE_FIELDS: Final = (3, 4)  # idle, iowait
_FIELDS: Final = 8  # with stolen time; guests are in user time already

Publish = Callable[[int, float, float], None]
"""Is called with the start (ns) of a new power, the power (W), and the energy before it (J)."""


class MachineLoad:
    """The share of its CPUs' time that this machine was busy, from one call to the next."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._last = self._ticks()
        self._load = 0.0

    def load(self) -> float:
        """The load from 0 to 1; the one before where the kernel's clock has not ticked."""
        busy, total = self._ticks()
        last_busy, last_total = self._last
        if total > last_total:
            self._load = min(1.0, max(0.0, (busy - last_busy) / (total - last_total)))
            self._last = busy, total
        return self._load

    def _ticks(self) -> tuple[int, int]:
        words = self._stat.read_text("ascii").split("\n", 1)[0].split()[1 : _FIELDS + 1]
        ticks = [int(word) for word in words]
        return sum(t for i, t in enumerate(ticks) if i not in _IDLE_FIELDS), sum(ticks)


class HostChip:
    """The power of one module's CPU and memory, constant from change to change."""

    def __init__(self, module: Module, start_ns: int, publish: Publish) -> None:
        self._module = module
        self._publish = publish
        self._pieces = [(start_ns, 0.0, module.host_power_w(0.0))]
        publish(start_ns, module.host_power_w(0.0), 0.0)

    def set_load(self, load: float, now_ns: int) -> None:
        """Draw as at this load, from a little later than now on."""
        power_w = self._module.host_power_w(load)
        t_ns = max(now_ns + _LEAD_NS, self._pieces[-1][0])
        energy_j = float(self.energy_at([t_ns])[0])
        self._pieces.append((t_ns, energy_j, power_w))
        self._publish(t_ns, power_w, energy_j)

    def energy_at(self, t_ns: ArrayLike) -> NDArray[np.float64]:
        """Energy (J) since the start, exact for moments that :meth:`forget` has left."""
        starts_ns, energy_j, power_w = (
            np.array(column) for column in zip(*self._pieces, strict=True)
        )
        times_ns = np.asarray(t_ns, np.int64)
        at = np.maximum(np.searchsorted(starts_ns, times_ns, side="right") - 1, 0)
        return np.asarray(energy_j[at] + power_w[at] * (times_ns - starts_ns[at]) / NS_PER_S)

    def changes_ns(self) -> NDArray[np.int64]:
        """When its power changed or will change, as far as that was not forgotten."""
        return np.array([t_ns for t_ns, _, _ in self._pieces], np.int64)

    def forget(self, until_ns: int) -> None:
        """Drop what was before ``until_ns``."""
        later = [i for i, piece in enumerate(self._pieces) if piece[0] <= until_ns][-1:]
        self._pieces = self._pieces[later[0] if later else 0 :]

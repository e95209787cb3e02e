"""One simulated GPU in real time: what it does is foretold, and told anew when something changes.

A stretch of time has one owner (a job, or nobody) and one set of knobs. The card holds the
stretch that is going on and, when that nears its end, the one that will follow if nothing
happens, so that whoever looks never looks past what is known.

The CPU and its memory on the module of a simulated superchip, in real time.

They draw with the load of this machine's own CPUs: the command runs there, since only the GPU is
simulated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from joulewise.simulate.model import BoardUnit, Knobs, Load, Module
from joulewise.simulate.physics.integrate import BETWEEN_STEPS, State, play, rest
from joulewise.simulate.timeline import Timeline, concat, join
from joulewise.simulate.workloads import StepSequence
from joulewise.units import NS_PER_MS, NS_PER_S

FOR_EVER = 1 << 62
_AHEAD_NS = NS_PER_S
_IDLE_AHEAD_NS = NS_PER_S // 2  # as a rule one piece, and one piece is cheap to cut
_MARGIN_NS = NS_PER_S // 4
_TURN_NS = NS_PER_S // 100


@dataclass(eq=False)
class Job:
    """Steps that ``owner`` wants done, then those of ``later``.

    The factors are those of its run (see ``play``). Its turn on the card began at ``turn_ns``.
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
        return round(sum(p.time_s for p in self.load.phases) * self.time_factor * NS_PER_S)


class _Stretch(NamedTuple):
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
    """Jobs take turns of whole steps, about 10 ms of them; with no job the card idles.

    Call :meth:`on_time` whenever ``due_ns`` has come, before telling it what else happened then.
    """

    def __init__(
        self, unit: BoardUnit, knobs: Knobs, start_ns: int, publish: Callable[[Timeline], None]
    ) -> None:
        self.unit = unit
        self.contexts = 0
        self._knobs = knobs
        self._publish = publish
        self._waiting: deque[Job] = deque()
        self._past: list[Timeline] = []
        self._accounted_s: dict[Any, tuple[float, float]] = {}
        state = rest(unit, start_ns)
        self._now = _Stretch(state, None, *self._play(state, None, start_ns, 0))
        self._next: _Stretch | None
        self.due_ns: int
        self._go_on(state, None)

    def on_time(self) -> Job | None:
        """Foretell what comes next, or go over to it; the job that this finished, if any."""
        if self._next is None:
            self._publish(self._look_ahead())
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
        """Start the job, after the steps in hand and in turn with others."""
        self._waiting.append(job)
        running = self._now.job
        state = self._cut(now_ns)
        self._go_on(state, running or self._waiting[0])

    def withdraw(self, owner: object, now_ns: int) -> None:
        """Its owner is gone: give up the job, in the middle of a step if need be."""
        self._waiting = deque(job for job in self._waiting if job.owner is not owner)
        running = self._now.job
        state = self._cut(now_ns)
        if running is not None and running.owner is owner:
            _, state = self._play(state, None, now_ns, 0)
            running = self._waiting[0] if self._waiting else None
        self._go_on(state, running)

    def turn(self, knobs: Knobs, now_ns: int) -> None:
        """The knobs are now these."""
        if knobs != self._knobs:
            state = self._cut(now_ns)
            self._knobs = knobs
            self._go_on(state, self._now.job)

    def attach(self, contexts: int, now_ns: int) -> None:
        """So many more processes (fewer, if negative) have the card open."""
        state = self._cut(now_ns)
        self.contexts += contexts
        self._go_on(state, self._now.job)

    def energy_j(self, now_ns: int) -> float:
        return float(self._now.timeline.energy_at(now_ns))

    def take(self) -> Timeline:
        """What the card did since the last call, and what it is doing."""
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
            return _add(counted_s, now.timeline, now_ns)
        return counted_s

    def discount(self, owner: object) -> None:
        """Count no longer."""
        self._accounted_s.pop(owner, None)

    def _retire(self, timeline: Timeline, job: Job | None) -> None:
        self._past.append(timeline)
        if job is not None and job.owner in self._accounted_s:
            counted_s = self._accounted_s[job.owner]
            self._accounted_s[job.owner] = _add(counted_s, timeline, timeline.end_ns)

    def _cut(self, now_ns: int) -> State:
        """The state now; what was foretold beyond is void."""
        now = self._now
        if now.job is None and now_ns > now.end.piece_ns:  # an idle goes on as it is
            timeline, state = Timeline(now.timeline.pieces, now_ns), now.end.back_to(now_ns)
        else:
            timeline, state = self._play(now.begin, now.job, now_ns, FOR_EVER)
        self._retire(timeline, now.job)
        if now.job is not None:
            now.job.remaining -= len(timeline.step_ends_ns)
        return state

    def _go_on(self, state: State, job: Job | None) -> None:
        others = any(other is not job for other in self._waiting)
        self._begin(self._stretch(state, job, job.remaining if job else 0, others=others))
        timeline = self._now.timeline
        if self._now.end_ns < state.t_ns + _IDLE_AHEAD_NS:
            after = self._look_ahead()
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

    def _look_ahead(self) -> Timeline:
        """Foretell what follows: the same job if a step is not over, else the next in turn."""
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
            self._knobs,
            until_ns=until_ns,
            steps=steps,
            contexts=self.contexts,
            time_factor=job.time_factor if job else 1.0,
            power_factor=job.power_factor if job else 1.0,
        )


def _add(counted_s: tuple[float, float], timeline: Timeline, end_ns: int) -> tuple[float, float]:
    """With how long GPU and memory were busy from the timeline's start on."""
    if not len(timeline.pieces):  # cut at the moment at which it began
        return counted_s
    gpu_s, memory_s = counted_s
    span_ns = [timeline.start_ns, min(end_ns, timeline.end_ns)]
    for_gpu, for_memory = (timeline.busy_s_at(span_ns, name) for name in ("busy", "memory_busy"))
    return gpu_s + float(for_gpu[1] - for_gpu[0]), memory_s + float(for_memory[1] - for_memory[0])


if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

PERIOD_NS: Final = 50 * NS_PER_MS
"""How often the load is looked at. Chosen: five ticks of the kernel's clock, and half a sensor's
period; with twice as much, the power follows the load later by as much."""

# A new power holds from a little later on, so that whoever reads up to now never reads a future
# that changes. Chosen: more than a busy machine takes to come back to the engine, as a rule.
_LEAD_NS: Final = 50 * NS_PER_MS
_IDLE_FIELDS: Final = (3, 4)  # idle, iowait
_FIELDS: Final = 8  # with stolen time; guests are in user time already

Publish = Callable[[int, float, float], None]
"""Is told from when on (ns), the power (W), and the energy drawn before (J)."""


class MachineLoad:
    """The share of its CPUs' time that this machine was busy, from one call to the next."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._last = self._ticks()
        self._load = 0.0

    def load(self) -> float:
        """From 0 to 1; as before where the kernel's clock has not ticked."""
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
    """What the CPU and the memory of one module draw: constant power from change to change."""

    def __init__(self, module: Module, start_ns: int, publish: Publish) -> None:
        self._module = module
        self._publish = publish
        self._pieces = [(start_ns, 0.0, module.host_power_w(0.0))]
        publish(start_ns, module.host_power_w(0.0), 0.0)

    def set_load(self, load: float, now_ns: int) -> None:
        """From a little later than now on it draws as at this load."""
        power_w = self._module.host_power_w(load)
        t_ns = max(now_ns + _LEAD_NS, self._pieces[-1][0])
        energy_j = float(self.energy_at([t_ns])[0])
        self._pieces.append((t_ns, energy_j, power_w))
        self._publish(t_ns, power_w, energy_j)

    def energy_at(self, t_ns: ArrayLike) -> NDArray[np.float64]:
        """Cumulative energy in J, exact from what was not forgotten on."""
        starts_ns, energy_j, power_w = (
            np.array(column) for column in zip(*self._pieces, strict=True)
        )
        times_ns = np.asarray(t_ns, np.int64)
        at = np.maximum(np.searchsorted(starts_ns, times_ns, side="right") - 1, 0)
        return np.asarray(energy_j[at] + power_w[at] * (times_ns - starts_ns[at]) / NS_PER_S)

    def changes_ns(self) -> NDArray[np.int64]:
        """When its power changed or will, as far as that was not forgotten."""
        return np.array([t_ns for t_ns, _, _ in self._pieces], np.int64)

    def forget(self, until_ns: int) -> None:
        """Nobody will ask for what was before."""
        later = [i for i, piece in enumerate(self._pieces) if piece[0] <= until_ns][-1:]
        self._pieces = self._pieces[later[0] if later else 0 :]

"""The steps of a job: those that it marks, else what its GPUs show of them.

``UnmarkedSteps`` follows the marks first. Where there are none while the GPUs are loaded, it looks
for a period in their power, then for a steady load (:mod:`.load_signal`); the first that is good
enough is the source, until the job marks steps after all, as after a compilation of a minute. Where
none is, the job is left untouched: ``has_lost_rank`` says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from joulewise.analyse.chunks import Floats, Ints
from joulewise.data import Quantity
from joulewise.data.tuning import StepSource
from joulewise.optimise.live.load_signal import (
    ActivitySteps,
    LoadReadings,
    PowerSteps,
    find_load_period,
    find_steady_rate,
)
from joulewise.optimise.live.steps import JobStep
from joulewise.store.layout import STREAM, StreamKind, stream_path
from joulewise.store.trace import StreamFollower
from joulewise.units import NS_PER_S

# Marks are waited for so long under load, and then the load is judged by as many seconds. Chosen:
# a training marks its first step when its kernels are compiled, and 30 s have 8 waves of 3 s.
_WAIT_NS: Final = 30 * NS_PER_S
# It is judged for the last time so long after the load began (chosen).
_GIVE_UP_NS: Final = 60 * NS_PER_S
_JUDGE_NS: Final = 3 * NS_PER_S  # between two judgements
_KEPT_NS: Final = 60 * NS_PER_S  # of readings
_LOADED: Final = 0.1  # utilisation from which on the GPUs are loaded (chosen)
# Without a step for so long, what was followed is over: a validation takes less (chosen).
_SILENT_NS: Final = 60 * NS_PER_S
_FIRST_B: Final = 1 << 20  # of a stream that is there already


class MarkedSteps(Protocol):
    """See :class:`joulewise.optimise.live.steps.StepFollower`."""

    @property
    def is_inferred(self) -> bool: ...

    def poll(self) -> Sequence[JobStep]: ...

    def has_lost_rank(self, now_ns: int) -> str: ...


class LoadSource(Protocol):
    """See :class:`GpuLoad`."""

    def poll(self) -> LoadReadings: ...


class UnmarkedSteps:
    """Steps by marks, by the power or by the activity of the GPUs; times are told."""

    def __init__(self, marked: MarkedSteps, load: LoadSource) -> None:
        self._marked = marked
        self._load = load
        self._has_marks = False
        self._signal: PowerSteps | ActivitySteps | None = None
        self._loaded_ns: int | None = None
        self._judged_ns = 0
        self._last_ns = 0
        self._fault = ""
        self.source = StepSource.MARKS
        self.note = ""

    @property
    def is_inferred(self) -> bool:
        return self._signal is None and self._marked.is_inferred

    def poll(self) -> Sequence[JobStep]:
        """The steps that are known since the last poll, oldest first."""
        marked = self._marked.poll()
        if marked and self._signal is not None:
            self._signal, self.source, self.note = None, StepSource.MARKS, ""
        if self._signal is None:
            self._has_marks = self._has_marks or bool(marked)
            return marked
        steps = list(self._signal.add(self._load.poll()))
        if steps:
            self._last_ns = steps[-1].end_ns
        return steps

    def has_lost_rank(self, now_ns: int) -> str:
        """Why there are no more steps; empty while there are, or may be."""
        if self._has_marks:
            return self._marked.has_lost_rank(now_ns)
        if self._signal is not None:
            silent_s = (now_ns - self._last_ns) / NS_PER_S
            is_over = now_ns - self._last_ns > _SILENT_NS
            return f"the {self.source.value} shows no step for {silent_s:.0f} s" if is_over else ""
        if not self._fault and now_ns - self._judged_ns >= _JUDGE_NS:
            self._judged_ns = now_ns
            self._judge(now_ns)
        return self._fault

    def _judge(self, now_ns: int) -> None:
        readings = self._load.poll()
        if self._loaded_ns is None:
            loaded = readings.work_ns[readings.utilisation >= _LOADED]
            self._loaded_ns = int(loaded[0]) if len(loaded) else None
        if self._loaded_ns is None or now_ns - self._loaded_ns < _WAIT_NS:
            return
        recent = readings.since(now_ns - _WAIT_NS)
        period = find_load_period(recent)
        if not isinstance(period, str):
            self._begin(PowerSteps(period), StepSource.POWER, now_ns)
            self.note = (
                f"a step is a wave of the power: {period.period_s:.2g} s before the tuning, with "
                f"lengths that differ by {100 * period.spread:.1f} %"
            )
            return
        rate = find_steady_rate(recent)
        if not isinstance(rate, str):
            self._begin(ActivitySteps(rate), StepSource.ACTIVITY, now_ns)
            self.note = (
                "a step is a fixed amount of utilisation times SM clock: how much longer the "
                "program really takes is not known, and rather less"
            )
        elif now_ns - self._loaded_ns >= _GIVE_UP_NS:
            self._fault = f"the program marked no steps, {period}, and {rate}"

    def _begin(self, signal: PowerSteps | ActivitySteps, source: StepSource, now_ns: int) -> None:
        self._signal, self.source, self._last_ns = signal, source, now_ns


class GpuLoad:
    """The power and activity of some GPUs, from the streams of a run under way."""

    def __init__(self, run: Path, keys: Sequence[str]) -> None:
        self._gpus = [_GpuStreams(run, key) for key in keys]

    def poll(self) -> LoadReadings:
        """All readings that are kept: those of the last minute. Empty where one GPU has none."""
        for gpu in self._gpus:
            gpu.update()
        power_ns, power_w = _sum([gpu.power.series() for gpu in self._gpus])
        activities = [gpu.activity() for gpu in self._gpus]
        work_ns, work = _sum([(t_ns, used * clock) for t_ns, used, clock in activities])
        utilisation = np.zeros(len(work_ns))
        if len(work_ns):
            shares = [np.interp(work_ns, t_ns, used) for t_ns, used, _ in activities]
            utilisation = np.min(shares, axis=0)
        return LoadReadings(power_ns, power_w, work_ns, work, utilisation)


def _sum(series: Sequence[tuple[Ints, Floats]]) -> tuple[Ints, Floats]:
    """The sum over GPUs at the times of the first, as far as all are known."""
    if any(len(t_ns) < 2 for t_ns, _ in series):
        return np.zeros(0, np.int64), np.zeros(0)
    start_ns, end_ns = max(t[0] for t, _ in series), min(t[-1] for t, _ in series)
    first_ns = series[0][0]
    t_ns = first_ns[(first_ns >= start_ns) & (first_ns <= end_ns)]
    total = np.zeros(len(t_ns))
    for own_ns, values in series:
        total += np.interp(t_ns, own_ns, values)
    return t_ns, total


class _GpuStreams:
    """Of one GPU; the driver's own samples where it keeps them, else what was polled."""

    def __init__(self, run: Path, key: str) -> None:
        def column(quantity: Quantity, *kinds: StreamKind) -> _Column:
            paths = [stream_path(run, key, kind, STREAM) for kind in kinds]
            return _Column(paths, quantity.value)

        used, clock = Quantity.GPU_UTILISATION, Quantity.SM_CLOCK
        self.power = column(Quantity.POWER, StreamKind.BUFFER, StreamKind.FAST)
        self._used = column(used, StreamKind.BUFFER_GPU_UTILISATION, StreamKind.SLOW)
        self._clock = column(clock, StreamKind.BUFFER_SM_CLOCK, StreamKind.SLOW)

    def update(self) -> None:
        for each in (self.power, self._used, self._clock):
            each.update()

    def activity(self) -> tuple[Ints, Floats, Floats]:
        """Utilisation (0 to 1) and SM clock, at the times of the utilisation."""
        (t_ns, percent), (clock_ns, mhz) = self._used.series(), self._clock.series()
        if len(clock_ns) < 2:
            return t_ns[:0], percent[:0], percent[:0]
        is_known = (t_ns >= clock_ns[0]) & (t_ns <= clock_ns[-1])
        t_ns, percent = t_ns[is_known], percent[is_known]
        return t_ns, percent / 100, np.interp(t_ns, clock_ns, mhz)


class _Column:
    """The last minute of one quantity, from the first of some streams that has any of it."""

    def __init__(self, paths: Sequence[Path], name: str) -> None:
        self._name = name
        self._followers = [StreamFollower(path, _FIRST_B) for path in paths]
        self._kept = [(np.zeros(0, np.int64), np.zeros(0)) for _ in paths]

    def update(self) -> None:
        for at, follower in enumerate(self._followers):
            for batch in follower.poll():
                values = batch.get(self._name)
                if values is None:
                    continue
                known = np.isfinite(values)
                t_ns = np.concatenate([self._kept[at][0], batch["t_ns"][known]])
                joined = np.concatenate([self._kept[at][1], values[known]])
                if len(t_ns):
                    kept = t_ns >= t_ns[-1] - _KEPT_NS
                    self._kept[at] = (t_ns[kept], joined[kept])

    def series(self) -> tuple[Ints, Floats]:
        return next((each for each in self._kept if len(each[0]) > 1), self._kept[0])

"""The steps of a job while it runs, read from the marks that its processes write.

``StepFollower.poll`` gives each whole step once, oldest first. A step lasts from its start to the
start of the next one, so that loading data between two steps counts. Where the loop was interrupted
between the two (a validation, the end of an epoch, a checkpoint that the program marks), it lasts
to its own end mark. So the last step is only known when something follows it.

- *Processes.* All files of marks of one process belong together: ``joulewise.span`` and the hooks
  of a framework write a file each. Records of all files are taken in the order of their times.
- *Guessed steps* (the hooks saw an optimiser) count where no process of the job marks steps itself.
- *Spans within the loop.* A span that lies between most steps (``data``) is part of the loop, and
  interrupts nothing. Guessed steps begin where the one before ended, so that an interruption lies
  within one: such a step is left out.
- *Ranks* (torchrun). Step k of the job is step k of all its ranks: earliest start, latest end.
  Steps of one job never overlap.
- *Restarts.* A rank that appears again begins another job, as in ``store.spans``. A process
  without ranks is followed once the one before it is silent; of two at once, only the first.

The cost, measured on a busy machine with 100 steps/s and 10 polls/s: 0.6 % of a core, of which most
is waking up; reading 10 steps takes 0.14 ms, 0.4 ms with four other spans in each.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic_ns
from typing import Any, Final, NamedTuple

from joulewise.data.tuning import StepSource
from joulewise.hooks import marks as mark_format
from joulewise.process.linux import is_gone, started_ticks
from joulewise.store.spans import MarkHeader, MarkTail, UnreadableMarksError
from joulewise.units import NS_PER_S

_STEP: Final = "step"
_TRAINING: Final = "training"
# These interrupt the loop however often they come: an epoch may have a single step.
_OUTER_NAMES: Final = frozenset({_TRAINING, "epoch", "validation"})
# Marks of other spans that are remembered since the last step's end (chosen). A program that marks
# more within one step loses the oldest, which changes nothing as long as the last ones are known.
_MAX_EVENTS: Final = 512
# A span is part of the loop from so many gaps between steps on, if it was in half of them (chosen;
# with more, a job that marks its data loading has more steps at the start that lack it).
_MIN_GAPS: Final = 4
# After so many gaps the counts are halved, so that a changed loop is noticed (chosen).
_MAX_GAPS: Final = 64
# A rank is lost after the time of so many of its longest recent steps, and at least after
# _MIN_SILENCE_NS, without a mark while another went on (chosen). Doubled, a lost rank is noticed
# later; halved, a rank that alone writes a checkpoint passes for lost.
_SILENT_STEPS: Final = 10
_MIN_SILENCE_NS: Final = 5 * NS_PER_S
# The same of a rank whose process has ended (chosen): ranks that end in order do so within it.
# Doubled, settings stay that much longer after a rank was killed.
_MIN_SILENCE_GONE_NS: Final = NS_PER_S
# Steps by which the length of a step is judged (chosen).
_RECENT_STEPS: Final = 16
# Steps that wait for another rank (chosen). A rank that lags further behind is not waited for.
_MAX_WAITING: Final = 1_000


@dataclass(frozen=True)
class JobStep:
    """One whole step of the job, of all its ranks; times of CLOCK_MONOTONIC.

    Where several steps are known by their mean, ``known_since_ns`` is when the first of them began.
    """

    start_ns: int
    end_ns: int
    known_since_ns: int | None = None


class _Event(NamedTuple):
    """The begin or end of a span that is not a step; ``start_ns`` is when that span began."""

    t_ns: int
    start_ns: int
    name: str


class _Record(NamedTuple):
    """A begin, an end or a whole span, as it was written at ``t_ns``."""

    t_ns: int
    kind: int
    flags: int
    name: str
    start_ns: int
    number: int  # the index of its kind
    token: int


@dataclass
class _RankStep:
    """A step of one process. ``next_ns`` is when its loop went on, None where it was interrupted.

    ``key`` tells which step of the job it is: how often the count began again, and its index.
    """

    key: tuple[int, int]
    start_ns: int
    end_ns: int
    next_ns: int | None = None


@dataclass
class _OpenSpan:
    name: str
    start_ns: int
    index: int
    is_guessed: bool
    is_nested: bool = False


class _Process:
    """The steps of one process, from all records of its files in the order of their times."""

    def __init__(self, header: MarkHeader) -> None:
        self.rank = header.rank
        self.last_ns = header.start_ns
        self._pid = header.pid
        self._ticks = started_ticks(header.pid)  # 0 where /proc does not show it
        # Whole ones that were not given yet.
        self.steps: deque[_RankStep] = deque(maxlen=_MAX_WAITING)
        self.newest_start_ns = 0  # of its whole steps
        self.announced: set[str] = set()
        self.fault = ""
        self.recent_ns: deque[int] = deque(maxlen=_RECENT_STEPS)
        self._open: dict[tuple[int, int], _OpenSpan] = {}  # by file and token
        self._open_steps: list[_OpenSpan] = []
        self._pending: _RankStep | None = None  # ended, while it is not known what follows
        self._events: deque[_Event] = deque(maxlen=_MAX_EVENTS)
        self._gaps = 0
        self._gaps_with: Counter[str] = Counter()
        self._key = (0, -1)  # of the last step
        self._trainings = 0  # open ones
        self._has_trained = False

    @property
    def is_finished(self) -> bool:
        """Whether its training has ended in order: no more steps are waited for."""
        return self._has_trained and not self._trainings

    @property
    def has_ended(self) -> bool:
        """Whether the process itself is certainly gone."""
        return self._ticks != 0 and is_gone(self._pid, self._ticks)

    @property
    def marks_steps(self) -> bool:
        """Whether the program itself announces its steps."""
        return _STEP in self.announced

    def add(self, file: int, record: _Record) -> None:
        """Take one record; those of all files of the process come in the order of their times."""
        self.last_ns = max(self.last_ns, record.t_ns)
        if record.kind == mark_format.FIGURE:
            return
        if record.kind == mark_format.END:
            span = self._open.pop((file, record.token), None)
            if span is not None:
                self._end(span, record.t_ns, is_cut=bool(record.flags & mark_format.CUT))
            return
        span = _OpenSpan(
            record.name, record.start_ns, record.number, bool(record.flags & mark_format.GUESSED)
        )
        if not self._counts(span):
            return
        if record.kind == mark_format.BEGIN:
            self._open[file, record.token] = span
            self._begin(span)
        elif record.kind == mark_format.WHOLE:
            self._begin(span)
            self._end(span, record.t_ns, is_cut=False)

    def _counts(self, span: _OpenSpan) -> bool:
        """Whether the span is not a guess at what the program announces itself."""
        if span.is_guessed:
            return span.name not in self.announced
        if span.name == _STEP and _STEP not in self.announced:
            self.forget_steps()
        if span.name == _STEP or span.name in _OUTER_NAMES:
            self.announced.add(span.name)
        return True

    def forget_steps(self) -> None:
        """Drop steps that were guessed: the job announces its steps after all."""
        self.steps.clear()
        self._pending = None
        self._open_steps.clear()
        self._key = (0, -1)

    def _begin(self, span: _OpenSpan) -> None:
        if span.name != _STEP:
            if span.name == _TRAINING:
                self._trainings, self._has_trained = self._trainings + 1, True
            self._note(_Event(span.start_ns, span.start_ns, span.name))
            return
        pending = self._pending
        # Within a step whose record came first: its time has been counted.
        span.is_nested = pending is not None and span.start_ns < pending.end_ns
        if not self._open_steps and not span.is_nested:
            self._finish_pending(span.start_ns)
        self._open_steps.append(span)

    def _end(self, span: _OpenSpan, end_ns: int, *, is_cut: bool) -> None:
        if span.name != _STEP:
            if span.name == _TRAINING:
                self._trainings -= 1
            self._note(_Event(end_ns, span.start_ns, span.name))
            return
        is_outermost = not self._open_steps or self._open_steps[0] is span
        self._open_steps = [other for other in self._open_steps if other is not span]
        is_outdated = span.is_guessed and self.marks_steps
        if span.is_nested or not is_outermost or is_outdated:
            return
        self._finish_pending(span.start_ns)
        self._count(span.index)
        is_whole = not is_cut and end_ns > span.start_ns
        is_interrupted = self._is_interrupted_within(span, end_ns)
        self._drop_events(span.start_ns)
        if not is_whole or is_interrupted:
            return
        self._pending = _RankStep(self._key, span.start_ns, end_ns)

    def _count(self, index: int) -> None:
        """The key of the next step; steps are numbered where the program does not."""
        begun, last = self._key
        index = last + 1 if index == mark_format.NONE else index
        self._key = (begun + (index <= last), index)

    def _drop_events(self, before_ns: int) -> None:
        while self._events and self._events[0].t_ns < before_ns:
            self._events.popleft()

    def _note(self, event: _Event) -> None:
        """Remember an event, which may tell at once that the loop does not go on."""
        self._events.append(event)
        pending = self._pending
        if pending is None or event.name not in _OUTER_NAMES or self._open_steps:
            return
        if event.t_ns >= pending.end_ns and not _is_inner(event, pending):
            self._finish_pending(None)

    def _finish_pending(self, next_ns: int | None) -> None:
        """Let the step before count: the next starts at ``next_ns``, None: it is interrupted."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        names = {
            event.name
            for event in self._events
            if event.t_ns >= pending.end_ns
            and (next_ns is None or event.t_ns <= next_ns)
            and not _is_inner(event, pending)
        }
        pending.next_ns = None if self._is_interruption(names) else next_ns
        if pending.next_ns is not None:
            pending.next_ns = max(pending.next_ns, pending.start_ns + 1)
        self.steps.append(pending)
        self.newest_start_ns = pending.start_ns
        self.recent_ns.append((pending.next_ns or pending.end_ns) - pending.start_ns)
        self._drop_events(pending.end_ns)

    def _is_interrupted_within(self, span: _OpenSpan, end_ns: int) -> bool:
        """Whether a guessed step, which begins at the end of the one before, is not all loop."""
        if not span.is_guessed:
            return False
        names = {event.name for event in self._events if span.start_ns < event.start_ns < end_ns}
        return self._is_interruption(names)

    def _is_interruption(self, names: set[str]) -> bool:
        """Whether one of these spans is not part of the loop; they are counted as seen."""
        names_in_loop = {
            name
            for name in names
            if self._gaps >= _MIN_GAPS and 2 * self._gaps_with[name] >= self._gaps
        }
        self._gaps += 1
        self._gaps_with.update(names)
        if self._gaps >= _MAX_GAPS:
            self._gaps //= 2
            self._gaps_with = Counter({k: n // 2 for k, n in self._gaps_with.items() if n > 1})
        return bool(names & _OUTER_NAMES) or bool(names - names_in_loop)


def _is_inner(event: _Event, step: _RankStep) -> bool:
    """Whether the span of an event began within the step."""
    return step.start_ns <= event.start_ns < step.end_ns


class _ReadRecord(NamedTuple):
    """A record with the number of its file, and the process that wrote it."""

    file: int
    process: _Process
    record: _Record


@dataclass
class _Job:
    """The processes of a job by their rank, from whose steps its own are made."""

    pids: dict[int, int] = field(default_factory=dict)  # by rank
    members: dict[int, _Process] = field(default_factory=dict)  # by rank
    last_end_ns: int = 0

    def stepping(self) -> list[_Process]:
        """The processes whose steps count, the leading one first."""
        members = [self.members[rank] for rank in sorted(self.members)]
        telling = [member for member in members if member.marks_steps]
        return [member for member in telling or members if member.recent_ns]

    def take_steps(self) -> Iterator[JobStep]:
        """Steps that every rank has made, oldest first."""
        while True:
            ranks = [each for each in self.stepping() if each.steps or not each.is_finished]
            if not ranks or not ranks[0].steps:
                return
            leading = ranks[0].steps[0]
            parts, is_waiting = [leading], False
            for other in ranks[1:]:
                part = _take_part(other, leading)
                if part is not None:
                    parts.append(part)
                elif other.newest_start_ns < leading.end_ns:
                    is_waiting = True
            if is_waiting and len(ranks[0].steps) < _MAX_WAITING:
                return
            for each in ranks:
                if each.steps and each.steps[0] in parts:
                    each.steps.popleft()
            step = self._merge(parts)
            if step is not None:
                yield step

    def _merge(self, parts: list[_RankStep]) -> JobStep | None:
        start_ns = max(min(part.start_ns for part in parts), self.last_end_ns)
        end_ns = max(part.end_ns for part in parts)
        nexts_ns = [part.next_ns for part in parts if part.next_ns is not None]
        if len(nexts_ns) == len(parts):
            end_ns = max(nexts_ns)
        if end_ns <= start_ns:
            return None
        self.last_end_ns = end_ns
        return JobStep(start_ns, end_ns)


def _take_part(process: _Process, leading: _RankStep) -> _RankStep | None:
    """The same step of another rank, its first one after those that the leading rank lacks."""
    for step in process.steps:
        if step.key == leading.key:
            while process.steps[0] is not step:
                process.steps.popleft()
            return step
    return None


class StepFollower:
    """Follows the steps of a run's job; reads only what the marks gained since the last poll."""

    source: Final = StepSource.MARKS

    def __init__(self, marks: Path, now_ns: Callable[[], int] = monotonic_ns) -> None:
        self._marks = marks
        self._now_ns = now_ns
        self._tails: dict[str, MarkTail] = {}
        self._processes: dict[str, _Process] = {}  # by the name of a file
        self._jobs: dict[tuple[int, ...], _Job] = {}
        self._unreadable: set[str] = set()
        self._early: list[_ReadRecord] = []  # that wait for the next poll
        self._job: _Job | None = None

    @property
    def ranks(self) -> int:
        """Processes whose steps are followed; 0 before the first step."""
        return len(self._job.stepping()) if self._job is not None else 0

    @property
    def is_inferred(self) -> bool:
        """Whether the steps are guessed from data loaders and optimisers."""
        ranks = self._job.stepping() if self._job is not None else []
        return bool(ranks) and not ranks[0].marks_steps

    def poll(self) -> list[JobStep]:
        """Whole steps of the job that are known since the last poll, oldest first."""
        # What is marked from now on may be read in one file and not yet in another: it waits.
        now_ns = self._now_ns()
        self._find_files()
        due, self._early = self._early, []
        for number, (name, tail) in enumerate(self._tails.items()):
            for entry in self._read(number, name, tail):
                (due if entry.record.t_ns <= now_ns else self._early).append(entry)
        due.sort(key=lambda entry: entry.record.t_ns)
        for entry in due:
            entry.process.add(entry.file, entry.record)
        return list(self._take_steps())

    def has_lost_rank(self, now_ns: int) -> str:
        """Why not all ranks of the job can be followed any more; empty where all can."""
        ranks = self._job.stepping() if self._job is not None else []
        newest_ns = max((each.last_ns for each in ranks), default=0)
        for each in ranks:
            name = f"rank {each.rank}" if len(ranks) > 1 else "the program"
            if each.fault:
                return f"{name} marks no more steps: {each.fault}"
            # Others went on without it for so long.
            silence_ns = min(now_ns, newest_ns) - each.last_ns
            if each.is_finished or silence_ns <= _MIN_SILENCE_GONE_NS:
                continue
            if each.has_ended:
                return f"{name} has ended"
            if silence_ns > _patience_ns(each):
                return f"{name} has marked nothing for {(now_ns - each.last_ns) / NS_PER_S:.0f} s"
        return ""

    def _find_files(self) -> None:
        try:
            names = [entry.name for entry in os.scandir(self._marks)]
        except OSError:
            return
        for name in sorted(names):
            if name.endswith(".marks") and name not in self._tails:
                self._tails[name] = MarkTail(self._marks / name)
            elif name.endswith(".lost"):
                process = self._processes.get(f"{name.removesuffix('.lost')}.marks")
                if process is not None:
                    process.fault = "its marks could not be written, as on a full disk"

    def _read(self, number: int, name: str, tail: MarkTail) -> Iterator[_ReadRecord]:
        if name in self._unreadable:
            return
        process = self._processes.get(name)
        try:
            for records in tail.read():
                if process is None and tail.header is not None:
                    process = self._add_process(name, tail.header)
                if process is None:
                    continue
                for record in _decode(tail, records):
                    yield _ReadRecord(number, process, record)
        except (OSError, UnreadableMarksError) as error:
            self._unreadable.add(name)
            if process is not None:
                process.fault = f"its marks cannot be read ({error})"

    def _add_process(self, name: str, header: MarkHeader) -> _Process:
        """The process of a file: of one that has a file already, or a new member of a job."""
        is_ranked = header.world_size > 1
        key = (header.job, header.world_size) if is_ranked else (header.pid,)
        job = self._jobs.get(key)
        if job is not None and job.pids.get(header.rank) == header.pid:
            process = job.members[header.rank]
        else:
            if job is None or header.rank in job.members:
                job = self._jobs[key] = _Job()
            process = job.members[header.rank] = _Process(header)
            job.pids[header.rank] = header.pid
        self._processes[name] = process
        return process

    def _take_steps(self) -> Iterator[JobStep]:
        for job in self._jobs.values():
            ranks = job.stepping()
            if any(each.marks_steps for each in job.members.values()):
                for each in job.members.values():
                    if not each.marks_steps:
                        each.forget_steps()
            if not ranks:
                continue
            if self._job is not None and job is not self._job:
                _drop_steps(ranks, self._busy_until_ns(self._job))
            if any(each.steps for each in ranks):
                self._job = job
                yield from job.take_steps()

    def _busy_until_ns(self, job: _Job) -> int:
        """Until when the job that is followed counts as going on: another may follow it then."""
        if all(job is not other for other in self._jobs.values()):  # its ranks were started again
            return 0
        return max(
            each.last_ns + (0 if each.is_finished else _patience_ns(each))
            for each in job.stepping()
        )


def _drop_steps(processes: list[_Process], until_ns: int) -> None:
    for process in processes:
        while process.steps and process.steps[0].start_ns <= until_ns:
            process.steps.popleft()


def _patience_ns(process: _Process) -> int:
    return max(_MIN_SILENCE_NS, _SILENT_STEPS * max(process.recent_ns, default=0))


def _decode(tail: MarkTail, records: Any) -> Iterator[_Record]:
    """The begins, ends and whole spans of some records."""
    for _, kind, flags, name, t_ns, start_ns, index, _, _, token in records.tolist():
        if kind >= mark_format.BEGIN:
            text = "" if kind == mark_format.END else tail.name_of(name)
            yield _Record(t_ns, kind, flags, text, start_ns, index, token)

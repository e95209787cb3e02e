"""Warnings about a run as a whole: the recorder, clocks, budgets, short spans, missing marks.

`find_warnings` gives those and the ones of single devices. Warnings of damaged files, of lost marks
and of the choice of devices are added by :mod:`joulewise.analyse.run_result`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from joulewise.analyse.attribution import Sighting
from joulewise.analyse.chunks import Floats, OpenStream
from joulewise.analyse.device_energy import CpuShare, MeasuredDevice
from joulewise.analyse.quality import devices
from joulewise.analyse.quality.devices import waiting
from joulewise.analyse.time_intervals import TimeInterval
from joulewise.budget import describe_whole_run
from joulewise.data import Kind, QualityWarning, WarningCode, total
from joulewise.data.tuning import Tuning
from joulewise.formatting import plain, seconds
from joulewise.record.environment import FrameworkUse
from joulewise.store.manifest import Manifest
from joulewise.store.spans import SpanTable
from joulewise.units import NS_PER_S, prefixed

TOO_WIDE: Final = 0.2
"""A sampling error beyond this share of the energy says that the sensors hardly saw the span."""

# All of these are chosen. Names of spans that a warning lists one by one.
_MAX_NAMES: Final = 5
# The sampling error that is promised for spans of the length that a warning advises.
_USEFUL_SHARE: Final = 0.1
# A run below this length is short whatever else was wrong: a sensor had no time to fail.
_SHORT_RUN_S: Final = 1.0
# A sensor that is read every 0.9 of its periods or less often may have more to tell.
_POLLED_SHARE: Final = 0.9
# A clock that is only kept right by NTP moves less in a day.
_MAX_CLOCK_STEP_S: Final = 0.5
# Deadlines that the recorder may miss without a warning: this share, and so many.
_MAX_LATE_SHARE: Final = 0.002
_MAX_LATE: Final = 3
# Other programs are warned of if they had more than this share of the CPU work, and of the run.
_OTHERS_SHARE: Final = 0.1
_OTHERS_CPUS: Final = 0.2
# Shares from which on words are used instead of a percentage.
_NEARLY_ALL_SHARE: Final = 0.95
_MOST_SHARE: Final = 0.6
# A shell's exit status of a command that a signal ended is above this.
_SIGNALLED: Final = 128


def too_short(
    counted: Sequence[MeasuredDevice],
    spans: SpanTable,
    energy_j: Floats,
    sampling_j: Floats,
    rate_hz: float,
) -> Iterator[QualityWarning]:
    """One warning for all of them; where a sensor failed, length is not to blame."""
    times_s = (spans.end_ns - spans.start_ns) / NS_PER_S
    with np.errstate(invalid="ignore"):
        short = sampling_j > TOO_WIDE * np.abs(energy_j)
    for measured in counted:
        short &= measured.clean[1:] & (spans.start_ns >= (measured.device.awake_ns or 0))
    if not short.any():
        return
    names, useful_s = {}, []
    for code in np.unique(spans.name[short]).tolist():
        of_name = spans.name == code
        bad = of_name & short
        share = bad.sum() / of_name.sum()
        many = "all" if share == 1 else f"{100 * share:.0f} % of the"
        names[spans.names[code]] = f"{many} spans {spans.names[code]!r} ({_about(times_s[bad])})"
        useful_s.append(_useful_s(times_s[bad], energy_j[bad], sampling_j[bad]))
    only = next(iter(names)) if len(names) == 1 else None
    more = f" and those of {len(names) - _MAX_NAMES} more names" if len(names) > _MAX_NAMES else ""
    listed = ", ".join(list(names.values())[:_MAX_NAMES]) + more
    yield _warning(listed, max(useful_s), counted, rate_hz, only)


def without_length(spans: SpanTable) -> Iterator[QualityWarning]:
    """Why a span has no energy: its marks lie at one moment, or it began where the trace ends."""
    is_empty = spans.end_ns <= spans.start_ns
    if not is_empty.any():
        return
    codes, counts = np.unique(spans.name[is_empty], return_counts=True)
    names = [spans.names[code] for code in codes.tolist()]
    listed = [f"{count} of {name!r}" for name, count in zip(names, counts.tolist(), strict=True)]
    more = f" and those of {len(names) - _MAX_NAMES} more names" if len(names) > _MAX_NAMES else ""
    yield QualityWarning(
        WarningCode.SPAN_TOO_SHORT,
        f"spans without a length have no energy: {', '.join(listed[:_MAX_NAMES])}{more}",
        "each ended at the moment it began, or began when the recording ended; the run's energy "
        "includes it",
        span=names[0] if len(names) == 1 else None,
    )


def too_short_run(
    counted: Sequence[MeasuredDevice], run: TimeInterval, rate_hz: float
) -> Iterator[QualityWarning]:
    """In the shortest runs a sensor does not fail: there was no time for it to answer."""
    energies = [measured.uses[0].energy for measured in counted]
    whole = total(energy for energy in energies if energy)
    clean = run.time_s < _SHORT_RUN_S or all(
        measured.clean[0] and run.start_ns >= (measured.device.awake_ns or 0)
        for measured in counted
    )
    if clean and whole and whole.error_sampling > TOO_WIDE * abs(whole.value):
        figures = ([run.time_s], [whole.value], [whole.error_sampling])
        times_s, energy_j, sampling_j = map(np.array, figures)
        useful_s = _useful_s(times_s, energy_j, sampling_j)
        yield _warning(f"the run ({_about(times_s)})", useful_s, counted, rate_hz, "run")


def _useful_s(times_s: Floats, energy_j: Floats, sampling_j: Floats) -> float:
    """From which length on spans have a useful error, by those that have not; 0 if unknown.

    The edges of a span cost about the same joules however long it lasts, so that its error falls as
    1 / length. The longest of these has more than ``TOO_WIDE``: it would have to be longer by more
    than ``TOO_WIDE / _USEFUL_SHARE`` itself, whatever the others have on average.
    """
    power_w = float(energy_j.sum()) / max(float(times_s.sum()), 1e-9)
    if power_w <= 0:
        return 0.0
    typical_s = float(np.median(sampling_j)) / (_USEFUL_SHARE * power_w)
    return max(typical_s, float(times_s.max()) * TOO_WIDE / _USEFUL_SHARE)


def _warning(
    which: str, useful_s: float, counted: Sequence[MeasuredDevice], rate_hz: float, name: str | None
) -> QualityWarning:
    enough = f"of at least {_about(useful_s)}" if useful_s else "that last longer"
    faster = "; a higher --rate may help" if _outpaced(counted, rate_hz) else ""
    return QualityWarning(
        WarningCode.SPAN_TOO_SHORT,
        f"too short for the sensors, with a sampling error above {100 * TOO_WIDE:.0f} %: {which}",
        f"in this run, spans {enough} have an error below {100 * _USEFUL_SHARE:.0f} %{faster}",
        span=name,
    )


def _outpaced(counted: Sequence[MeasuredDevice], rate_hz: float) -> bool:
    """Whether some sensor updates more often than it is polled."""
    return any(
        period_s is not None and period_s * rate_hz < _POLLED_SHARE
        for device in (measured.device for measured in counted)
        if device.has_sensor
        for period_s in (device.card.update_period_s, device.card.counter_period_s)
    )


def _about(times_s: Floats | float) -> str:
    seconds = float(np.median(times_s))
    if seconds >= 1:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{1e3 * seconds:.1f} ms" if seconds < 0.01 else f"{1e3 * seconds:.0f} ms"


_ELSEWHERE: Final = {
    WarningCode.UNAVAILABLE,
    WarningCode.HOST_PROCESS_IDS,
    WarningCode.RECORDER_ENDED,
}
_NOTED: Final = {caution.value: caution for caution in WarningCode if caution not in _ELSEWHERE}
_HINTS: Final = {
    WarningCode.SETTINGS_UNGUARDED: "the figures may be of several settings: measure again",
    WarningCode.LEFT_RUNNING: "have the command wait for them, or measure one: joulewise run --pid",
    WarningCode.CLOCK_SET: "energies and times are not affected: their clock cannot be set",
    WarningCode.SUSPENDED: "that time is in no figure: the clock that times use stopped",
    WarningCode.NOT_STORED: "free disk space for runs; the figures are of what could be written",
}


def find_warnings(
    *,
    manifest: Manifest,
    state: str,
    run: TimeInterval,
    last_row_ns: int | None,
    counted: Sequence[MeasuredDevice],
    cpu: CpuShare,
    sightings: Sequence[Sighting],
    spans: SpanTable,
    energy_j: Floats,
    sampling_j: Floats,
    open_stream: OpenStream,
    tuning: Tuning | None = None,
) -> Iterator[QualityWarning]:
    """Warnings of this module and of single devices.

    ``energy_j`` and ``sampling_j`` are of the spans, over what is counted. ``tuning`` is that of
    the run, where it was tuned.
    """
    known = [measured.uses[0].energy for measured in counted]
    yield from from_notes(manifest, sum(one.value for one in known if one), run.time_s)
    yield from clock_set(manifest)
    yield from recorder_ended(manifest, state, run, last_row_ns)
    yield from tuning_ended(tuning)
    yield from late(manifest)
    yield from no_baseline(manifest, counted)
    for measured in counted:
        yield from devices.find_warnings(measured, manifest, sightings, run, tuning)
        yield from waiting(measured, spans, open_stream, run)
    yield from busy_with_others(cpu, run)
    rate_hz = manifest.rate_hz
    yield from too_short_run(counted, run, rate_hz)
    yield from too_short(counted, spans, energy_j, sampling_j, rate_hz)
    yield from without_length(spans)


def from_notes(manifest: Manifest, energy_j: float, time_s: float) -> Iterator[QualityWarning]:
    """Warnings that the recorder noted during the run.

    Not those in ``_ELSEWHERE``, which are given with what they mean for the figures. A budget is
    given with what the whole run took of it.
    """
    for note in manifest.notes:
        code = _NOTED.get(note.get("code", ""))
        if code:
            hint = note.get("hint") or _HINTS.get(code, "")
            message = note.get("message", "")
            if code is WarningCode.BUDGET:
                message = describe_whole_run(note, energy_j, time_s) or message
            yield QualityWarning(code, message, hint, note.get("device"))


def clock_set(manifest: Manifest) -> Iterator[QualityWarning]:
    if manifest.wall_end_ns is None or manifest.monotonic_end_ns is None:
        return
    known = {WarningCode.CLOCK_SET.value, WarningCode.SUSPENDED.value}
    if any(note.get("code") in known for note in manifest.notes):
        return
    wall_s = (manifest.wall_end_ns - manifest.wall_start_ns) / NS_PER_S
    lasted_s = (manifest.monotonic_end_ns - manifest.monotonic_start_ns) / NS_PER_S
    step_s = wall_s - lasted_s
    if abs(step_s) > _MAX_CLOCK_STEP_S:
        direction = "forward" if step_s > 0 else "back"
        yield QualityWarning(
            WarningCode.CLOCK_SET,
            f"the machine's clock went {direction} by {abs(step_s):.1f} s during the run",
            _HINTS[WarningCode.CLOCK_SET],
        )


def recorder_ended(
    manifest: Manifest, state: str, run: TimeInterval, last_row_ns: int | None
) -> Iterator[QualityWarning]:
    """The recorder was gone before the command was."""
    notes = [n for n in manifest.notes if n.get("code") == WarningCode.RECORDER_ENDED.value]
    if state != "killed" and not notes:
        return
    hint = notes[0].get("hint") if notes else ""
    up_to = ""
    if last_row_ns is not None and last_row_ns <= run.start_ns:
        up_to = ": nothing was recorded while the command ran"
    elif last_row_ns is not None:
        up_to = f": the trace ends {run.after_s(last_row_ns):.1f} s in"
        if last_row_ns < run.end_ns:
            up_to += ", and energies are lower bounds, up to there"
    yield QualityWarning(
        WarningCode.RECORDER_ENDED,
        f"the recorder ended before the run was over{up_to}",
        hint or "see dmesg: the kernel kills processes when memory runs out",
    )


def tuning_ended(tuning: Tuning | None) -> Iterator[QualityWarning]:
    """The tuner ended while the command went on: at the settings from before."""
    if tuning is None or tuning.early_end is None:
        return
    end = tuning.early_end
    hint = {
        True: "the rest of the run is at the settings from before, which are back",
        False: "the settings from before may not be back: run joulewise restore",
        None: "the settings from before are put back by their guardian, or the next joulewise "
        "command",
    }
    yield QualityWarning(
        WarningCode.TUNING_ENDED,
        f"the tuning ended after {seconds(end.at_s)}, before the command: {plain(end.reason)}",
        hint[end.is_restored],
    )


def no_baseline(manifest: Manifest, counted: Sequence[MeasuredDevice]) -> Iterator[QualityWarning]:
    """Idle time was requested before the command (``--baseline``), and a GPU was not idle."""
    wanted_s = manifest.options.get("baseline_s") or 0.0
    for measured in counted:
        if wanted_s > 0 and measured.device.info.kind is Kind.GPU and not measured.baseline:
            yield QualityWarning(
                WarningCode.NO_BASELINE,
                f"no idle baseline: {measured.no_baseline}",
                "measure longer with --baseline, while nothing else uses it",
                measured.device.info.key,
            )


def late(manifest: Manifest) -> Iterator[QualityWarning]:
    """Deadlines that went by unserved, on the streams that joules come from."""
    streams = manifest.recorder.lanes if manifest.recorder else {}
    worst, where = 0.0, ""
    for name, stream in streams.items():
        rows, missed = stream.get("rows") or 0, stream.get("missed") or 0
        share = missed / (rows + missed) if missed else 0.0
        if share > worst and missed >= _MAX_LATE and not name.endswith(".slow"):
            worst, where = share, name
    if worst > _MAX_LATE_SHARE:
        yield QualityWarning(
            WarningCode.LATE,
            f"the recorder missed up to {100 * worst:.1f} % of its deadlines ({where})",
            "the machine was busy, or a driver slow; try a lower --rate",
            where.partition(".")[0],
        )


def busy_with_others(cpu: CpuShare, run: TimeInterval) -> Iterator[QualityWarning]:
    """CPU time of the machine that was not the command's."""
    if cpu.busy_s is None or cpu.command_s is None:
        return
    recorder_s = cpu.recorder_s or 0.0
    others_s = cpu.busy_s - cpu.command_s - recorder_s
    if others_s > max(_OTHERS_SHARE * cpu.busy_s, _OTHERS_CPUS * run.time_s):
        about = ""
        if cpu.command_share_j is not None:
            share = prefixed(cpu.command_share_j, "J")
            about = f"; the command's share of the energy above idle is about {share}"
        yield QualityWarning(
            WarningCode.OTHER_PROCESSES,
            f"other programs did {_how_much(others_s / cpu.busy_s)} of the CPU work "
            f"({others_s:.1f} of {cpu.busy_s:.1f} CPU seconds){about}",
            "the CPU's energy is that of the whole machine; measure while nothing else runs",
            "cpu0",
        )


def _how_much(share: float) -> str:
    """A share in words, beside which the figures stand."""
    if share > _NEARLY_ALL_SHARE:
        return "nearly all"
    return "most" if share > _MOST_SHARE else f"{100 * share:.0f} %"


LEAST_S: Final = 10.0
"""So long a framework must have been loaded: chosen, as longer than it takes to try something out
and shorter than a training that one measures. With 20 s short experiments have no warning."""

LEAST_CPU_SHARE: Final = 0.1
"""Of one core since the import: chosen, as a training keeps about one busy to start kernels, and a
server that waits for requests none."""


def unmarked(
    uses: Sequence[FrameworkUse], spans: SpanTable, manifest: Manifest, run: TimeInterval
) -> Iterator[QualityWarning]:
    """One warning for the process that used a framework the longest.

    There is none where there is any span, or where marks were lost.
    """
    if len(spans) or spans.warnings:
        return
    timed = [(time_s, use) for use in uses if (time_s := _time_s(use, manifest, run)) is not None]
    time_s, use = max(timed, key=lambda pair: pair[0], default=(0.0, None))
    if use is None or time_s < LEAST_S:
        return
    names = ", ".join(f"{name} {parts['version']}" for name, parts in use.frameworks.items())
    yield QualityWarning(
        WarningCode.NO_MARKS,
        f"{names} ran for {time_s:.0f} s, and no training, epoch or step was marked",
        'mark them: with joulewise.span("epoch", i, total=n): … around each epoch',
    )


def _time_s(use: FrameworkUse, manifest: Manifest, run: TimeInterval) -> float | None:
    """How long it was at work; None where it idled, or where that is not known."""
    time_s, cpu_s = use.time_s, use.cpu_s
    if time_s is None:  # the process was killed: of the command itself the CPU time is known
        for command in manifest.commands:
            is_killed = command.exit_code is not None and (
                command.exit_code < 0 or command.exit_code > _SIGNALLED
            )
            if command.pid == use.pid and is_killed:
                time_s, cpu_s = (
                    run.after_s(run.end_ns) - run.after_s(use.imported_ns),
                    command.cpu_s,
                )
    if time_s is None or cpu_s is None or cpu_s < LEAST_CPU_SHARE * time_s:
        return None
    return time_s

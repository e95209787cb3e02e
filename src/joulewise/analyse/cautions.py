"""What a reader of a result must know, as typed warnings, from what was recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from joulewise.analyse import device_cautions, span_cautions
from joulewise.analyse.cpu_share import CpuShare
from joulewise.analyse.lanes import OpenLane
from joulewise.analyse.measured import MeasuredDevice
from joulewise.analyse.stretch import Stretch
from joulewise.analyse.touched import Sighting
from joulewise.analyse.waiting import waiting
from joulewise.data import Caution, Kind, RunWarning
from joulewise.record.manifest import Manifest
from joulewise.units import NS_PER_S, prefixed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from joulewise.record.marks import SpanTable

_CLOCK_STEP_S: Final = 0.5  # a clock that is only kept right moves less in a day
_LATE_SHARE: Final = 0.002
_LATE_LEAST: Final = 3
_BUSY_SHARE: Final = 0.1
_NEARLY_ALL: Final = 0.95  # chosen, as is _MOST: from such a share on it is so called
_MOST: Final = 0.6
_BUSY_CPUS: Final = 0.2
_ELSEWHERE: Final = {Caution.UNAVAILABLE, Caution.HOST_PROCESS_IDS, Caution.RECORDER_ENDED}
_NOTED: Final = {caution.value: caution for caution in Caution if caution not in _ELSEWHERE}
_HINTS: Final = {
    Caution.SETTINGS_UNGUARDED: "the figures may be of several settings: measure again",
    Caution.LEFT_RUNNING: "have the command wait for them, or measure one: joulewise run --pid PID",
    Caution.CLOCK_SET: "energies and times are not affected: they rest on a clock nobody can set",
    Caution.SUSPENDED: "that time is in no figure: the clock that times rest on stood still",
    Caution.NOT_STORED: "make room where the runs are; the figures are of what could be written",
}


def cautions(
    *,
    manifest: Manifest,
    state: str,
    run: Stretch,
    last_row_ns: int | None,
    counted: Sequence[MeasuredDevice],
    cpu: CpuShare,
    sightings: Sequence[Sighting],
    spans: SpanTable,
    energy_j: NDArray[np.float64],
    sampling_j: NDArray[np.float64],
    lanes: OpenLane,
) -> Iterator[RunWarning]:
    """All of them; ``energy_j`` and ``sampling_j`` are of the spans, over what is counted."""
    known = [measured.uses[0].energy for measured in counted]
    yield from from_notes(manifest, sum(one.value for one in known if one), run.time_s)
    yield from clock_set(manifest)
    yield from recorder_ended(manifest, state, run, last_row_ns)
    yield from late(manifest)
    yield from no_baseline(manifest, counted)
    for measured in counted:
        yield from device_cautions.cautions(measured, manifest, sightings, run)
        yield from waiting(measured, spans, lanes, run)
    yield from busy_with_others(cpu, run)
    rate_hz = manifest.rate_hz
    yield from span_cautions.too_short_run(counted, run, rate_hz)
    yield from span_cautions.too_short(counted, spans, energy_j, sampling_j, rate_hz)
    yield from span_cautions.without_length(spans)


def from_notes(manifest: Manifest, energy_j: float, time_s: float) -> Iterator[RunWarning]:
    """What the recorder and the budget had to say themselves.

    A fault of a sensor is told as the gap that it made; processes and the recorder's end are
    told with what they mean for the figures, and a budget with what the run took of it.
    """
    for note in manifest.notes:
        code = _NOTED.get(note.get("code", ""))
        if code:
            hint = note.get("hint") or _HINTS.get(code, "")
            message = note.get("message", "")
            if code is Caution.BUDGET:
                message = _budget_use(note, energy_j, time_s) or message
            yield RunWarning(code, message, hint, note.get("device"))


def _budget_use(note: Mapping[str, str], energy_j: float, time_s: float) -> str:
    """What the whole run took of a budget; empty where that cannot be told.

    A budget is taken for used up by what is known at that moment: all readings together may show
    less, within the time between two of them.
    """
    try:
        limit, factor = float(note["limit"]), float(note["factor"])
        taken = time_s if note["kind"] == "time" else energy_j
        amounts = [_in_unit(each / factor, note["unit"]) for each in (taken, taken - limit)]
    except (KeyError, ValueError):  # recorded by a joulewise that did not write it
        return ""
    used, over = amounts
    was, then = note.get("was", ""), note.get("then", "")
    if taken > limit:
        return f"{was}; the whole run took {used}, {over} over{then}"
    return f"{was}, as was estimated at that moment; all readings together show {used}{then}"


def _in_unit(amount: float, unit: str) -> str:
    return f"{amount:.0f} {unit}" if amount >= 100 else f"{amount:.3g} {unit}"


def clock_set(manifest: Manifest) -> Iterator[RunWarning]:
    if manifest.wall_end_ns is None or manifest.monotonic_end_ns is None:
        return
    known = {Caution.CLOCK_SET.value, Caution.SUSPENDED.value}
    if any(note.get("code") in known for note in manifest.notes):
        return
    wall_s = (manifest.wall_end_ns - manifest.wall_start_ns) / NS_PER_S
    lasted_s = (manifest.monotonic_end_ns - manifest.monotonic_start_ns) / NS_PER_S
    step_s = wall_s - lasted_s
    if abs(step_s) > _CLOCK_STEP_S:
        way = "forward" if step_s > 0 else "back"
        yield RunWarning(
            Caution.CLOCK_SET,
            f"the machine's clock went {way} by {abs(step_s):.1f} s during the run",
            _HINTS[Caution.CLOCK_SET],
        )


def recorder_ended(
    manifest: Manifest, state: str, run: Stretch, last_row_ns: int | None
) -> Iterator[RunWarning]:
    """The recorder was gone before the command was."""
    notes = [n for n in manifest.notes if n.get("code") == Caution.RECORDER_ENDED.value]
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
    yield RunWarning(
        Caution.RECORDER_ENDED,
        f"the recorder ended before the run was over{up_to}",
        hint or "look into dmesg: the kernel ends processes for want of memory",
    )


def no_baseline(manifest: Manifest, counted: Sequence[MeasuredDevice]) -> Iterator[RunWarning]:
    """Idle time was asked for before the command, and a GPU was not idle."""
    wanted_s = manifest.options.get("baseline_s") or 0.0
    for measured in counted:
        if wanted_s > 0 and measured.device.info.kind is Kind.GPU and not measured.baseline:
            yield RunWarning(
                Caution.NO_BASELINE,
                f"no idle baseline: {measured.no_baseline}",
                "ask for more seconds with --baseline, while nothing else uses it",
                measured.device.info.key,
            )


def late(manifest: Manifest) -> Iterator[RunWarning]:
    """Deadlines that went by unserved, on the lanes that joules come from."""
    lanes = manifest.recorder.lanes if manifest.recorder else {}
    worst, where = 0.0, ""
    for name, lane in lanes.items():
        rows, missed = lane.get("rows") or 0, lane.get("missed") or 0
        share = missed / (rows + missed) if missed else 0.0
        if share > worst and missed >= _LATE_LEAST and not name.endswith(".slow"):
            worst, where = share, name
    if worst > _LATE_SHARE:
        yield RunWarning(
            Caution.LATE,
            f"the recorder missed up to {100 * worst:.1f} % of its deadlines ({where})",
            "the machine was busy, or a driver slow; a lower --rate asks less of both",
            where.partition(".")[0],
        )


def busy_with_others(cpu: CpuShare, run: Stretch) -> Iterator[RunWarning]:
    """CPU time of the machine that was not the command's."""
    if cpu.busy_s is None or cpu.command_s is None:
        return
    recorder_s = cpu.recorder_s or 0.0
    others_s = cpu.busy_s - cpu.command_s - recorder_s
    if others_s > max(_BUSY_SHARE * cpu.busy_s, _BUSY_CPUS * run.time_s):
        about = ""
        if cpu.command_share_j is not None:
            share = prefixed(cpu.command_share_j, "J")
            about = f"; the command's share of the energy above idle is about {share}"
        yield RunWarning(
            Caution.OTHER_PROCESSES,
            f"{_how_much(others_s / cpu.busy_s)} of the CPU work was by other programs "
            f"({others_s:.1f} of {cpu.busy_s:.1f} s){about}",
            "the CPU's energy is that of the whole machine; measure while nothing else runs",
            "cpu0",
        )


def _how_much(share: float) -> str:
    """A share in words, beside which the figures stand."""
    if share > _NEARLY_ALL:
        return "nearly all"
    return "most" if share > _MOST else f"{100 * share:.0f} %"

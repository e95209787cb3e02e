"""The runs of a group, one a node, as one result in which each device counts once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from joulewise.analyse.time_intervals import TimeInterval
from joulewise.data import (
    Energy,
    Excluded,
    Kind,
    QualityWarning,
    RunResult,
    Span,
    SpanResult,
    Use,
    WarningCode,
    total,
    total_of_one,
)
from joulewise.store.manifest import Manifest, RecordedDevice
from joulewise.store.runs import COMPLETE, KILLED, RECORDING, STOPPED_BY_BUDGET
from joulewise.units import NS_PER_S

# By how much the wall clocks of two machines, or of one before and after a reboot, may differ. Runs
# that overlap by less are taken to follow each other (chosen; with NTP it is far less).
_CLOCKS_APART_NS: Final = 5 * NS_PER_S


@dataclass(frozen=True)
class GroupRun:
    """A run of the group."""

    manifest: Manifest
    result: RunResult

    @property
    def time(self) -> TimeInterval:
        """When it was by CLOCK_MONOTONIC, which cannot be set."""
        span = self.result.run.span
        return TimeInterval(span.start_ns, span.end_ns)

    @property
    def wall_time(self) -> TimeInterval:
        """When it was by the wall clock, the only one by which nodes can be compared."""
        return self.time.shift(self.manifest.wall_start_ns - self.manifest.monotonic_start_ns)

    @property
    def node(self) -> str:
        return self.manifest.host.get("name") or self.manifest.id


@dataclass(frozen=True)
class _Part:
    """What one run has of one device; ``reason`` is why it does not count there."""

    key: str
    member: GroupRun
    use: Use
    reason: str | None

    @property
    def no_baseline(self) -> str:
        """Why it is not known what a GPU drew above idle."""
        baselines = self.member.result.details.get("baseline", {})
        reason = baselines.get(self.key.rpartition("/")[2], {}).get("reason")
        return f"{reason} in {self.member.manifest.id}" if reason else ""

    @property
    def rank(self) -> tuple[bool, bool, int]:
        """Of two at the same time the higher one counts: counted, read, and longer."""
        return self.reason is None, self.use.energy is not None, self.member.time.time_ns


def sum_group(name: str, members: Sequence[GroupRun]) -> RunResult:
    """From the start of the first run to the end of the last, over all nodes."""
    times = sorted(_times(members), key=lambda each: each[0].start_ns)
    members = [member for _, member in times]
    boards: dict[tuple[str, str], list[_Part]] = {}
    for member in members:
        reasons = {out.device: out.reason for out in member.result.excluded}
        for device in member.manifest.devices:
            key = device.info.key
            counts = key in member.result.counted
            reason = None if counts else reasons.get(key, "")
            part = _Part(f"{member.node}/{key}", member, member.result.run.devices[key], reason)
            boards.setdefault(_identity(member, device), []).append(part)
    uses: dict[str, list[Use]] = {}
    energies: list[Energy | None] = []
    counted: dict[str, None] = {}
    excluded: list[Excluded] = []
    warnings: list[QualityWarning] = []
    no_baseline: dict[str, str] = {}
    for parts in boards.values():
        separate, overlapping = _without_overlap(parts)
        counting = [part for part in separate if part.reason is None]
        if counting:
            energies.append(_sum([part.use for part in counting]).energy)
        counted.update(dict.fromkeys(part.key for part in counting))
        no_baseline.update({p.key: p.no_baseline for p in counting if p.no_baseline})
        for part in counting or separate:
            uses.setdefault(part.key, []).append(part.use)
        for part in overlapping:
            uses.setdefault(part.key, [part.use])
        twice = [
            (part.key, _left_out(part, separate)) for part in overlapping if part.reason is None
        ]
        excluded += [Excluded(key, reason) for key, reason in twice]
        warnings += [
            QualityWarning(WarningCode.OVERLAP, f"{key} counts once: {reason}", device=key)
            for key, reason in twice
        ]
        whys = {part.key: part.reason for part in parts if part.reason is not None}
        excluded += [Excluded(key, why) for key, why in whys.items() if key not in counted]
    devices = {key: _sum(mine) for key, mine in uses.items()}
    start_ns, end_ns = times[0][0].start_ns, max(time.end_ns for time, _ in times)
    whole = SpanResult(Span("run", None, start_ns, end_ns), total(energies), devices)
    nodes = list(dict.fromkeys(member.node for member in members))
    codes = [member.result.exit_code for member in members]
    return RunResult(
        id=name,
        exit_code=next((code for code in codes if code), codes[0]),
        state=_state([member.result.state for member in members]),
        start_monotonic_ns=None,
        start_wall_ns=start_ns,
        run=whole,
        counted=tuple(counted),
        excluded=tuple(excluded),
        warnings=(
            *warnings,
            *(
                replace(warning, device=warning.device and f"{member.node}/{warning.device}")
                for member in members
                for warning in member.result.warnings
            ),
        ),
        details={
            "about": {
                "command": members[0].result.details.get("about", {}).get("command", ""),
                "host": nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes",
            },
            "baseline": {
                key: {"kind": None, "reason": reason} for key, reason in no_baseline.items()
            },
            "devices": {
                f"{member.node}/{device.info.key}": {"is_simulated": device.is_simulated}
                for member in members
                for device in member.manifest.devices
            },
            "measured_s": _covered_ns([time for time, _ in times]) / NS_PER_S,
            "runs": [member.manifest.id for member in members],
        },
    )


def _times(members: Sequence[GroupRun]) -> list[tuple[TimeInterval, GroupRun]]:
    """When each was by the wall clock; on one boot a clock that was set changes nothing."""
    first = min(members, key=lambda member: member.time.start_ns)
    if not all(_one_clock(first, member) for member in members):
        return [(member.wall_time, member) for member in members]
    ahead_ns = first.wall_time.start_ns - first.time.start_ns
    return [(member.time.shift(ahead_ns), member) for member in members]


def _one_clock(one: GroupRun, other: GroupRun) -> bool:
    return bool(one.manifest.boot_id) and one.manifest.boot_id == other.manifest.boot_id


def _covered_ns(times: Sequence[TimeInterval]) -> int:
    """Time in which any of them, in the order of their starts, was."""
    covered_ns, up_to_ns = 0, times[0].start_ns
    for time in times:
        covered_ns += max(0, time.end_ns - max(up_to_ns, time.start_ns))
        up_to_ns = max(up_to_ns, time.end_ns)
    return covered_ns


def _identity(member: GroupRun, device: RecordedDevice) -> tuple[str, str]:
    """A GPU's uid is the only one in the world; any machine has a cpu0."""
    if device.info.kind is Kind.GPU:
        return "", device.info.uid
    return member.manifest.boot_id or member.node, device.info.uid


def _without_overlap(parts: Sequence[_Part]) -> tuple[list[_Part], list[_Part]]:
    """Split the parts of one device into those that follow each other and those that overlap them.

    Greedy, by rank: a part that counts before one that does not, the longest first.
    """
    separate: list[_Part] = []
    overlapping: list[_Part] = []
    for part in sorted(parts, key=lambda part: part.rank, reverse=True):
        overlaps = any(_shared_ns(part, other) for other in separate)
        (overlapping if overlaps else separate).append(part)
    return separate, overlapping


def _left_out(part: _Part, separate: Sequence[_Part]) -> str:
    twins = [other for other in separate if _shared_ns(part, other)]
    alone_ns = part.member.time.time_ns
    alone_ns -= sum(_shared_ns(part, other) for other in twins)
    named = ", ".join(other.member.manifest.id for other in twins)
    only = f"; {alone_ns / NS_PER_S:.3g} s of it are in no other run" if alone_ns else ""
    return f"{part.member.manifest.id} recorded it at the same time as {named}{only}"


def _shared_ns(one: _Part, other: _Part) -> int:
    if _one_clock(one.member, other.member):
        return one.member.time.shared_ns(other.member.time)
    shared_ns = one.member.wall_time.shared_ns(other.member.wall_time)
    shortest_ns = min(one.member.time.time_ns, other.member.time.time_ns)
    return shared_ns if shared_ns > min(_CLOCKS_APART_NS, shortest_ns // 2) else 0


def _sum(uses: Sequence[Use]) -> Use:
    """Of one device in runs that followed each other."""
    if len(uses) == 1:
        return uses[0]
    peaks = [use.peak_w for use in uses if use.peak_w is not None]
    energy = total_of_one(use.energy for use in uses)
    is_known = all(use.net or not use.energy for use in uses)
    net = total_of_one(use.net for use in uses) if is_known else None
    return Use(energy, net, peak_w=max(peaks, default=None)) if energy else Use(None)


def _state(states: Sequence[str]) -> str:
    """The worst state of the runs."""
    order = (RECORDING, KILLED, "stopped", STOPPED_BY_BUDGET, COMPLETE)
    return min(states, key=lambda state: order.index(state) if state in order else 0)

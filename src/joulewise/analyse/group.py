"""The runs of a group, one a node, as one result in which each device counts once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from joulewise.data import Excluded, Kind, RunResult, Span, SpanResult, Use, total, total_of_one
from joulewise.record.manifest import Manifest, RecordedDevice
from joulewise.units import NS_PER_S


@dataclass(frozen=True)
class Member:
    """A run of the group with its place in the world's time, in which nodes can be compared."""

    manifest: Manifest
    result: RunResult

    @property
    def start_ns(self) -> int:
        since_ns = self.result.start_monotonic_ns - self.manifest.monotonic_start_ns
        return self.manifest.wall_start_ns + since_ns

    @property
    def end_ns(self) -> int:
        return self.start_ns + round(self.result.time_s * NS_PER_S)

    @property
    def node(self) -> str:
        return self.manifest.host.get("name") or self.manifest.id


def sum_group(name: str, members: Sequence[Member]) -> RunResult:
    """From the start of the first run to the end of the last, over all nodes."""
    members = sorted(members, key=lambda member: member.start_ns)
    uses: dict[str, list[Use]] = {}
    counted: dict[str, None] = {}
    excluded: dict[str, Excluded] = {}
    taken: dict[tuple[str, str], list[Member]] = {}
    for member in members:
        reasons = {out.device: out.reason for out in member.result.excluded}
        for device in member.manifest.devices:
            key = f"{member.node}/{device.info.key}"
            use = member.result.run.devices[device.info.key]
            before = taken.setdefault(_identity(member, device), [])
            twin = next((other for other in before if _overlap(other, member)), None)
            if twin is not None:
                if key not in uses:
                    uses[key] = [use]
                    excluded[key] = Excluded(key, f"the same device is in {twin.manifest.id}")
                continue
            before.append(member)
            uses.setdefault(key, []).append(use)
            if device.info.key in member.result.counted:
                counted[key] = None
            else:
                excluded[key] = Excluded(key, reasons.get(device.info.key, ""))
    devices = {key: _sum(mine) for key, mine in uses.items()}
    start_ns, end_ns = members[0].start_ns, max(member.end_ns for member in members)
    energies = [devices[key].energy for key in counted]
    whole = SpanResult(
        Span("run", None, start_ns, end_ns), total(e for e in energies if e), devices
    )
    codes = [member.result.exit_code for member in members]
    return RunResult(
        id=name,
        exit_code=next((code for code in codes if code), codes[0]),
        state=_state([member.result.state for member in members]),
        start_monotonic_ns=start_ns,
        run=whole,
        counted=tuple(counted),
        excluded=tuple(out for key, out in excluded.items() if key not in counted),
        warnings=tuple(
            replace(warning, device=warning.device and f"{member.node}/{warning.device}")
            for member in members
            for warning in member.result.warnings
        ),
        details={
            "about": {
                "command": members[0].result.details.get("about", {}).get("command", ""),
                "host": f"{len({member.node for member in members})} nodes",
            },
            "runs": [member.manifest.id for member in members],
        },
    )


def _identity(member: Member, device: RecordedDevice) -> tuple[str, str]:
    """A GPU's uid is the only one in the world; any machine has a cpu0."""
    if device.info.kind is Kind.GPU:
        return "", device.info.uid
    return member.manifest.boot_id or member.node, device.info.uid


def _overlap(one: Member, other: Member) -> bool:
    return one.start_ns < other.end_ns and other.start_ns < one.end_ns


def _sum(uses: Sequence[Use]) -> Use:
    """Of one device in runs that followed each other."""
    if len(uses) == 1:
        return uses[0]
    peaks = [use.peak_w for use in uses if use.peak_w is not None]
    energy = total_of_one(use.energy for use in uses if use.energy)
    return Use(energy, peak_w=max(peaks, default=None)) if energy else Use(None)


def _state(states: Sequence[str]) -> str:
    """That of the run which is worst off."""
    order = ("recording", "killed", "stopped", "complete")
    return min(states, key=lambda state: order.index(state) if state in order else 0)

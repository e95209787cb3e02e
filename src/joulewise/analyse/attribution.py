"""Which devices a command used: these are in its total, and each joule is there once.

A GPU is the command's if a process of the command was seen on it, or if its activity rose during
the command and no process of others explains that. CPUs, memory and the node always count. What is
inside a device that counts is left out (`data.devices.find_contained`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from joulewise.data import Excluded, Kind, QualityWarning, Quantity, WarningCode
from joulewise.data.devices import find_contained, find_replaced
from joulewise.store.files import open_regular
from joulewise.store.layout import ENDED, PROCESSES, SIMULATION
from joulewise.store.manifest import Manifest, RecordedDevice
from joulewise.store.runs import KILLED, status
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from joulewise.analyse.activity import Activity
    from joulewise.analyse.chunks import Bools, Ints
    from joulewise.analyse.time_intervals import TimeSet


# Reasons to leave devices out of a total, worded to fit one device and several.
UNTOUCHED = "not used by any process of the command"
UNSEEN = "no process of the command was seen on it"
HOST_IDS = WarningCode.HOST_PROCESS_IDS.value
_ENERGY = {Quantity.POWER.value, Quantity.ENERGY.value}
# The recorder lists processes about once a second: a shorter run may have no list (chosen).
_MIN_LISTED_NS = 2 * NS_PER_S
# A process may have come since the last list, and what it did be seen first: where the time of
# that list was not recorded, it was a second before, and some.
_SINCE_LIST_NS = round(1.5 * NS_PER_S)
# Clocks stay up for some seconds after the last kernel: 2 to 5 s of the simulated boards, and one.
_CLOCKS_UP_NS = 6 * NS_PER_S
_GRAPHICS = "graphics"
_ALONE_HINT = (
    "if the command does not use this GPU, hide it from the command: CUDA_VISIBLE_DEVICES="
)
_DOCTOR = "for details: joulewise doctor"
_SHORT_HINT = "of a command that takes some seconds, it is seen which GPUs it uses"
_HOST_IDS_HINT = "start the container with --pid=host, so that the command's GPUs are recognised"


@dataclass(frozen=True)
class DeviceProcess:
    """A process on a device. ``ours``: it belongs to the command; None where that is not known."""

    pid: int
    name: str
    ours: bool | None
    kind: str = "compute"


@dataclass(frozen=True)
class Sighting:
    """The processes on a device from ``t_ns`` on; ``holders`` is None where the driver has no list.

    ``since_ns`` is the time of the list before, after which they came, None where not known. One
    that ``looks_back`` has those that were on it at some time of the recording, and ended.
    """

    t_ns: int
    device: str
    holders: tuple[DeviceProcess, ...] | None
    looks_back: bool = False
    since_ns: int | None = None


@dataclass(frozen=True)
class CountedDevices:
    """The devices that count, and why the others do not.

    ``missing`` are those that count and could not be read: the total is a lower bound.
    """

    counted: tuple[str, ...]
    excluded: tuple[Excluded, ...]
    warnings: tuple[QualityWarning, ...]
    missing: tuple[str, ...] = ()


def read_sightings(run: Path) -> tuple[Sighting, ...]:
    """The sightings in processes.jsonl, without a line that was cut off."""
    try:
        with open_regular(run / PROCESSES) as file:
            lines = file.read().splitlines()
    except OSError:
        return ()
    return tuple(parse_sightings(lines))


def choose(
    manifest: Manifest,
    sightings: Sequence[Sighting],
    start_ns: int,
    end_ns: int,
    *,
    busy: Collection[str] = (),
    unread: Collection[str] = (),
    damaged: Mapping[str, str] | None = None,
    activity: Callable[[str, TimeSet], Activity] | None = None,
) -> CountedDevices:
    """Choose the devices that count from ``start_ns`` to ``end_ns``.

    CPUs, memory and the node always count. A GPU counts where a process of the command held it, or
    where its ``activity`` (a function of the device and of when others computed on it) rose and
    these do not explain it; and, with a warning, where neither is known. One that is ``busy`` while
    the driver names no process may be the command's. ``unread`` are devices without an energy, and
    ``damaged`` has those whose trace is damaged, and how. Without ``activity`` only processes
    decide, as they do while a run goes on.
    """
    sightings = merge_parts(manifest, sightings)
    seen = {d.info.key: _during(sightings, d.info.key, start_ns, end_ns) for d in manifest.devices}
    foreign = {n.get("device") for n in manifest.notes if n.get("code") == HOST_IDS}
    gpus = [d.info.key for d in manifest.devices if d.info.kind is Kind.GPU and d.sources]
    unsure = [
        key
        for key in gpus
        if key in foreign or seen[key] is None or (key in busy and not seen[key])
    ]
    usage: dict[str, Usage] = {}
    for key in gpus:
        if _ours(seen[key]):
            usage[key] = Usage.SEEN
        elif key not in unsure:
            listings = [s for s in sightings if s.device == key and not s.looks_back]
            active = activity(key, _explained(listings)) if activity else None
            usage[key] = _usage(listings, active)
            if usage[key] is Usage.NONE and any(h.kind == ENDED for h in seen[key] or ()):
                usage[key] = Usage.UNKNOWN  # a process was there that is in no list
    excluded: dict[str, str] = {}
    silent: dict[str, str] = {}
    for device in manifest.devices:
        key = device.info.key
        if key in usage and usage[key] in _NOT_COUNTED:
            excluded[key] = _NOT_COUNTED[usage[key]] + _loaded_by(seen[key] or ())
        elif not device.sources:
            why = device.unavailable.reason if device.unavailable else "it has no sensor"
            (silent if device.asleep_ns is None else excluded)[key] = f"cannot be read: {why}"
        elif key in unread:
            silent[key], _ = _why_unread(manifest, device, damaged or {})
    _leave_out_unused_parts(manifest, excluded, silent)
    _leave_out_contained(manifest, excluded, silent)
    counted = tuple(d.info.key for d in manifest.devices if d.info.key not in excluded)
    return CountedDevices(
        counted,
        tuple(Excluded(key, reason) for key, reason in excluded.items()),
        tuple(_warnings(manifest, excluded, unsure, seen, silent=silent, time_ns=end_ns - start_ns))
        + tuple(_unseen_uses({key: usage[key] for key in counted if key in usage})),
        tuple(silent),
    )


class Usage(Enum):
    """What is known of a command's use of a GPU."""

    SEEN = "a process of the command was seen on it"
    SHOWN = "its activity rose, and no process of others explains that"
    UNKNOWN = "neither processes nor activity can tell"
    OTHERS = "others explain its activity"
    NONE = "no process of the command was seen, and no activity that began with it"


_NOT_COUNTED: Mapping[Usage, str] = {Usage.OTHERS: UNSEEN, Usage.NONE: UNTOUCHED}


def _usage(listings: Sequence[Sighting], active: Activity | None) -> Usage:
    """Of a GPU on which no process of the command was seen."""
    if active is None:
        return Usage.NONE
    if active.is_active:
        return Usage.SHOWN if active.is_unexplained else Usage.OTHERS
    if active.is_complete:
        return Usage.NONE
    # Where others compute on it all the time, activity would not have shown the command's use.
    is_others = bool(listings) and all(_explains(each) for each in listings)
    return Usage.OTHERS if is_others else Usage.UNKNOWN


def _explained(listings: Sequence[Sighting]) -> TimeSet:
    """When a process of others computed on the device.

    There is no list before the recording: who is in the first list was there before.
    """
    import numpy as np

    from joulewise.analyse.time_intervals import TimeSet

    first_ns, last_ns = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    times_ns = [
        (
            first_ns
            if not i
            else listing.t_ns - _SINCE_LIST_NS
            if listing.since_ns is None
            else listing.since_ns,
            listings[i + 1].t_ns + _CLOCKS_UP_NS if i + 1 < len(listings) else last_ns,
        )
        for i, listing in enumerate(listings)
        if _explains(listing)
    ]
    start_ns, end_ns = np.array(times_ns, np.int64).reshape(-1, 2).T
    return TimeSet.union(start_ns, end_ns)


def _explains(sighting: Sighting) -> bool:
    """A desktop's server is always there, and does little."""
    return any(
        holder.ours is False and holder.kind != _GRAPHICS for holder in sighting.holders or ()
    )


def merge_parts(manifest: Manifest, sightings: Sequence[Sighting]) -> Sequence[Sighting]:
    """The same, where a GPU that reports for another is held by whoever holds either of them.

    Such is an MI250, whose two dies are two GPUs with one reading of energy.
    """
    merged = list(sightings)
    for part, whole in _unread_parts(manifest).items():
        listings = [s for s in merged if s.device in (part, whole) and not s.looks_back]
        rest = [s for s in merged if s.device != whole or s.looks_back]
        held: dict[str, tuple[DeviceProcess, ...] | None] = {}
        both: list[Sighting] = []
        for listing in sorted(listings, key=lambda each: each.t_ns):
            held[listing.device] = listing.holders
            known = [holders for holders in held.values() if holders is not None]
            holders = tuple(dict.fromkeys(chain.from_iterable(known))) if known else None
            both.append(replace(listing, device=whole, holders=holders))
        back = [replace(s, device=whole) for s in merged if s.device == part and s.looks_back]
        merged = sorted([*rest, *both, *back], key=lambda each: each.t_ns)
    return merged


def _unread_parts(manifest: Manifest) -> dict[str, str]:
    """GPUs that another GPU reports for, by key, and the key of that one."""
    unread = {d.info.key for d in manifest.devices if d.info.kind is Kind.GPU and not d.sources}
    return {
        part: device.info.key
        for device in manifest.devices
        if device.info.kind is Kind.GPU and device.sources
        for part in device.info.contains
        if part in unread
    }


def held_at(sightings: Sequence[Sighting], key: str, t_ns: Ints) -> Bools:
    """Whether a process held the device at each of these times.

    There is no list before the command starts: others who are in the first list were there before.
    """
    import numpy as np

    of_device = [each for each in sightings if each.device == key and not each.looks_back]
    first = of_device[0].holders or () if of_device else ()
    before = any(holder.ours is False for holder in first)
    times = np.array([sighting.t_ns for sighting in of_device], np.int64)
    held = np.array([before, *(bool(sighting.holders) for sighting in of_device)])
    return held[np.searchsorted(times, t_ns, side="right")]


def faults_of(manifest: Manifest, key: str) -> list[Mapping[str, str]]:
    """What the recorder noted of this device's power and counter, or of all of it."""
    return [
        note
        for note in manifest.notes
        if note.get("code") == WarningCode.UNAVAILABLE.value
        and note.get("device") == key
        and note.get("quantity", Quantity.POWER.value) in _ENERGY
        and "t_ns" in note
    ]


def find_other_processes(
    sightings: Sequence[Sighting], key: str, start_ns: int, end_ns: int
) -> tuple[DeviceProcess, ...]:
    """Processes of others that held the device in that time."""
    held = _during(sightings, key, start_ns, end_ns) or ()
    return tuple({holder.pid: holder for holder in held if holder.ours is False}.values())


def parse_sightings(lines: Iterable[bytes]) -> Iterator[Sighting]:
    """Sightings from lines of JSON; a line in another form is left out."""
    for line in lines:
        with suppress(ValueError, KeyError, TypeError):
            entry = json.loads(line.decode("utf-8", errors="replace"))
            is_back = ENDED in entry
            listed = entry[ENDED if is_back else "processes"]
            holders = None if listed is None else tuple(map(_parse_process, listed))
            since_ns = entry.get("since_ns")
            yield Sighting(entry["t_ns"], entry["device"], holders, is_back, since_ns)


def _parse_process(entry: Mapping[str, object]) -> DeviceProcess:
    ours = entry["ours"]
    return DeviceProcess(
        int(str(entry["pid"])),
        str(entry.get("name") or ""),
        ours if ours is None else bool(ours),
        str(entry.get("kind") or "compute"),
    )


def _during(
    sightings: Sequence[Sighting], key: str, start_ns: int, end_ns: int
) -> tuple[DeviceProcess, ...] | None:
    """All processes on it in that time; None where there is no list of them."""
    of_device = [each for each in sightings if each.device == key]
    listings = [each for each in of_device if not each.looks_back]
    before = [sighting for sighting in listings if sighting.t_ns <= start_ns][-1:]
    within = [sighting for sighting in listings if start_ns < sighting.t_ns <= end_ns]
    within += [each for each in of_device if each.looks_back]
    known = [sighting.holders for sighting in before + within if sighting.holders is not None]
    return tuple(chain.from_iterable(known)) if known else None


def _ours(held: tuple[DeviceProcess, ...] | None) -> bool:
    return any(holder.ours for holder in held or ())


def _loaded_by(held: Iterable[DeviceProcess]) -> str:
    """Whose load it was, in brackets; empty where no process was there."""
    others = _names(held)
    if others == SIMULATION:
        return "; its load is the simulation's own (sim --workload)"
    return f" (used by other processes: {others})" if others else ""


def _names(held: Iterable[DeviceProcess]) -> str:
    return ", ".join(dict.fromkeys(holder.name or f"process {holder.pid}" for holder in held))


def _unseen_uses(usage: Mapping[str, Usage]) -> Iterator[QualityWarning]:
    for key, what in usage.items():
        if what is Usage.SHOWN:
            message = f"{UNSEEN}, but its activity rose while the command ran: it is counted"
            yield QualityWarning(WarningCode.UNSEEN_USE, message, _ALONE_HINT, key)
        elif what is Usage.UNKNOWN:
            message = f"{UNSEEN}, but it was not read all the time: it is counted, used or not"
            yield QualityWarning(WarningCode.UNSEEN_USE, message, _ALONE_HINT, key)


def _why_unread(
    manifest: Manifest, device: RecordedDevice, damaged: Mapping[str, str]
) -> tuple[str, str]:
    """Why there are no joules of a device, and what to do."""
    if device.info.key in damaged:
        return f"its trace is damaged: {damaged[device.info.key]}", _DOCTOR
    why, hint = reason_unread(manifest, device)
    return ": ".join(filter(None, ["hardly read while the command ran", why])), hint


def reason_unread(manifest: Manifest, device: RecordedDevice) -> tuple[str, str]:
    """Why a device was not read in all of the run, empty where not known, and what to do."""
    for fault in faults_of(manifest, device.info.key):
        return fault["message"], fault.get("hint") or _DOCTOR
    if device.unavailable:
        return device.unavailable.reason, device.unavailable.fix or _DOCTOR
    if device.sources and has_recorder_ended(manifest):
        return "the recorder had ended", "measure again"
    return "", _DOCTOR


def has_recorder_ended(manifest: Manifest) -> bool:
    """Whether the recorder was gone before the command was."""
    ended = WarningCode.RECORDER_ENDED.value
    return status(manifest) == KILLED or any(n.get("code") == ended for n in manifest.notes)


def _leave_out_unused_parts(
    manifest: Manifest, excluded: dict[str, str], silent: dict[str, str]
) -> None:
    """Move to ``excluded`` what another GPU reports for, where that one was not used either."""
    for part, whole in _unread_parts(manifest).items():
        if part in silent and whole in excluded:
            excluded[part] = excluded[whole]
            del silent[part]


def _leave_out_contained(
    manifest: Manifest, excluded: dict[str, str], silent: dict[str, str]
) -> None:
    """Move to ``excluded`` what is inside a device that counts, or has its contents counted."""
    infos = [device.info for device in manifest.devices]
    contained = find_contained(infos, excluded, silent)
    excluded |= {
        info.key: f"part of the energy of {contained[info.key]}"
        for info in infos
        if info.key in contained
    }
    for key in contained:
        silent.pop(key, None)
    for key in find_replaced(infos, {**excluded, **silent}, contained):
        if key in silent:
            excluded[key] = silent.pop(key)


def _warnings(
    manifest: Manifest,
    excluded: Mapping[str, str],
    unsure: Sequence[str],
    seen: Mapping[str, tuple[DeviceProcess, ...] | None],
    *,
    silent: Mapping[str, str],
    time_ns: int,
) -> Iterator[QualityWarning]:
    parts = _unread_parts(manifest)
    for device in manifest.devices:
        key = device.info.key
        if key in parts and key in excluded:
            continue  # what is said of the device that reports for it holds for both
        if key in silent or (key in excluded and not device.sources):
            _, hint = reason_unread(manifest, device)
            yield QualityWarning(WarningCode.UNAVAILABLE, {**excluded, **silent}[key], hint, key)
        elif key in excluded:
            hint = "its energy is shown beside the total, not in it"
            yield QualityWarning(WarningCode.EXCLUDED, excluded[key], hint, key)
    counted = [key for key in unsure if key not in excluded and key not in silent]
    if counted:
        what, hint = "the driver lists no processes", _HOST_IDS_HINT
        if any(seen[key] for key in counted):
            what = "the driver lists the host's process ids, which are unknown in this container"
        elif time_ns < _MIN_LISTED_NS:
            what, hint = (
                "the recording ended before the processes on the GPUs could be listed",
                _SHORT_HINT,
            )
        elif any(faults_of(manifest, key) for key in counted):
            what, hint = "a GPU that fails lists no processes", _DOCTOR
        message = f"{what}, so all energy of {', '.join(counted)} is counted as the command's"
        yield QualityWarning(WarningCode.HOST_PROCESS_IDS, message, hint)

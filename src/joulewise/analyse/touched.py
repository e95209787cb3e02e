"""Which devices a command used: these are in its total, and each joule is there once."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from joulewise.data import Caution, Excluded, Kind, Quantity, RunWarning
from joulewise.record.layout import PROCESSES
from joulewise.record.manifest import Manifest, RecordedDevice
from joulewise.record.store import KILLED, status
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Reasons to leave devices out of a total; they are told of one as of several.
UNTOUCHED = "not used by any process of the command"
HOST_IDS = Caution.HOST_PROCESS_IDS.value
_ENERGY = {Quantity.POWER.value, Quantity.ENERGY.value}
_LOOK_NS = 2 * NS_PER_S
_DOCTOR = "joulewise doctor tells more"
_SHORT_HINT = "a command of some seconds has its GPUs told apart"
_HOST_IDS_HINT = "in a container started with --pid=host, the command's GPUs are told apart"


@dataclass(frozen=True)
class Holder:
    """A process on a device. ``ours`` is None where nobody can tell whose it is."""

    pid: int
    name: str
    ours: bool | None


@dataclass(frozen=True)
class Sighting:
    """Who held a device from then on; ``holders`` is None where the driver did not say."""

    t_ns: int
    device: str
    holders: tuple[Holder, ...] | None


@dataclass(frozen=True)
class Choice:
    """The devices whose energies make up the total, and why the others do not."""

    counted: tuple[str, ...]
    excluded: tuple[Excluded, ...]
    warnings: tuple[RunWarning, ...]


def read_sightings(run: Path) -> tuple[Sighting, ...]:
    """What processes.jsonl tells; a line that was cut off is none."""
    try:
        lines = (run / PROCESSES).read_bytes().splitlines()
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
) -> Choice:
    """What counts in the stretch from ``start_ns`` to ``end_ns``.

    CPUs, memory and the node always count, and a GPU where a process of the command held it. A GPU
    that is ``busy`` while the driver names nobody may be the command's: it counts, with a word.
    """
    seen = {d.info.key: _during(sightings, d.info.key, start_ns, end_ns) for d in manifest.devices}
    foreign = {n.get("device") for n in manifest.notes if n.get("code") == HOST_IDS}
    gpus = [d.info.key for d in manifest.devices if d.info.kind is Kind.GPU and d.sources]
    unsure = [
        key
        for key in gpus
        if key in foreign or seen[key] is None or (key in busy and not seen[key])
    ]
    excluded: dict[str, str] = {}
    for device in manifest.devices:
        key = device.info.key
        if not device.sources:
            why = device.unavailable.reason if device.unavailable else "it has no sensor"
            excluded[key] = f"cannot be read: {why}"
        elif key in unread:
            excluded[key], _ = _why_unread(manifest, device)
        elif key in gpus and key not in unsure and not _ours(seen[key]):
            others = _names(seen[key] or ())
            excluded[key] = f"{UNTOUCHED} (others did: {others})" if others else UNTOUCHED
    excluded |= _inside(manifest.devices, excluded)
    counted = tuple(d.info.key for d in manifest.devices if d.info.key not in excluded)
    return Choice(
        counted,
        tuple(Excluded(key, reason) for key, reason in excluded.items()),
        tuple(
            _warnings(manifest, excluded, unsure, seen, unread=unread, time_ns=end_ns - start_ns)
        ),
    )


def held_at(sightings: Sequence[Sighting], key: str, t_ns: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether a process held the device at each of these times.

    Nobody looks before the command starts: others who are there at the first look were before.
    """
    import numpy as np

    mine = [sighting for sighting in sightings if sighting.device == key]
    first = mine[0].holders or () if mine else ()
    before = any(holder.ours is False for holder in first)
    times = np.array([sighting.t_ns for sighting in mine], np.int64)
    held = np.array([before, *(bool(sighting.holders) for sighting in mine)])
    return held[np.searchsorted(times, t_ns, side="right")]


def faults_of(manifest: Manifest, key: str) -> list[Mapping[str, str]]:
    """What the recorder noted of this device's power and counter, or of all of it."""
    return [
        note
        for note in manifest.notes
        if note.get("code") == Caution.UNAVAILABLE.value
        and note.get("device") == key
        and note.get("quantity", Quantity.POWER.value) in _ENERGY
        and "t_ns" in note
    ]


def strangers(
    sightings: Sequence[Sighting], key: str, start_ns: int, end_ns: int
) -> tuple[Holder, ...]:
    """Processes of others that held the device in that stretch."""
    held = _during(sightings, key, start_ns, end_ns) or ()
    return tuple({holder.pid: holder for holder in held if holder.ours is False}.values())


def parse_sightings(lines: Iterable[bytes]) -> Iterator[Sighting]:
    for line in lines:
        with suppress(ValueError, KeyError, TypeError):
            told = json.loads(line.decode("utf-8", errors="replace"))
            listed = told["processes"]
            holders = None if listed is None else tuple(map(_holder, listed))
            yield Sighting(told["t_ns"], told["device"], holders)


def _holder(told: Mapping[str, object]) -> Holder:
    ours = told["ours"]
    return Holder(
        int(str(told["pid"])), str(told.get("name") or ""), ours if ours is None else bool(ours)
    )


def _during(
    sightings: Sequence[Sighting], key: str, start_ns: int, end_ns: int
) -> tuple[Holder, ...] | None:
    """All who held it within the stretch; None where nobody ever looked, or could."""
    mine = [sighting for sighting in sightings if sighting.device == key]
    before = [sighting for sighting in mine if sighting.t_ns <= start_ns][-1:]
    within = [sighting for sighting in mine if start_ns < sighting.t_ns <= end_ns]
    told = [sighting.holders for sighting in before + within if sighting.holders is not None]
    return tuple(holder for holders in told for holder in holders) if told else None


def _ours(held: tuple[Holder, ...] | None) -> bool:
    return any(holder.ours for holder in held or ())


def _names(held: Iterable[Holder]) -> str:
    return ", ".join(dict.fromkeys(holder.name or f"process {holder.pid}" for holder in held))


def _why_unread(manifest: Manifest, device: RecordedDevice) -> tuple[str, str]:
    """Why there are no joules of a device, and what to do."""
    unavailable, ended = device.unavailable, Caution.RECORDER_ENDED.value
    whys = [fault["message"] for fault in faults_of(manifest, device.info.key)]
    whys += [unavailable.reason] if unavailable else []
    hint = (unavailable and unavailable.fix) or _DOCTOR
    is_ended = status(manifest) == KILLED or any(n.get("code") == ended for n in manifest.notes)
    if is_ended and device.sources and not whys:
        whys, hint = ["the recorder was gone"], "measure again"
    return ": ".join(["hardly read while the command ran", *whys[:1]]), hint


def _inside(devices: Sequence[RecordedDevice], excluded: Mapping[str, str]) -> dict[str, str]:
    """Devices whose joules are in another's that counts."""
    return {
        key: f"part of the energy of {device.info.key}"
        for device in devices
        if device.info.key not in excluded
        for key in device.info.contains
        if key not in excluded
    }


def _warnings(
    manifest: Manifest,
    excluded: Mapping[str, str],
    unsure: Sequence[str],
    seen: Mapping[str, tuple[Holder, ...] | None],
    *,
    unread: Collection[str],
    time_ns: int,
) -> Iterator[RunWarning]:
    for device in manifest.devices:
        key = device.info.key
        if key not in excluded:
            continue
        if not device.sources or key in unread:
            _, hint = _why_unread(manifest, device)
            yield RunWarning(Caution.UNAVAILABLE, excluded[key], hint, key)
        else:
            hint = "what it drew stands beside the total"
            yield RunWarning(Caution.EXCLUDED, excluded[key], hint, key)
    counted = [key for key in unsure if key not in excluded]
    if counted:
        what, hint = "the driver tells no processes", _HOST_IDS_HINT
        if any(seen[key] for key in counted):
            what = "the driver tells the host's process ids, which say nothing in this container"
        elif time_ns < _LOOK_NS:
            what, hint = "the recording was over before the processes could be listed", _SHORT_HINT
        elif any(faults_of(manifest, key) for key in counted):
            what, hint = "a GPU that fails tells no processes", _DOCTOR
        message = f"{what}, so all that {', '.join(counted)} drew is counted as the command's"
        yield RunWarning(Caution.HOST_PROCESS_IDS, message, hint)

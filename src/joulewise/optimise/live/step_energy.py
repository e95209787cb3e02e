"""Joules of any windows of a run under way, from the streams that its recorder is writing.

``LiveEnergy`` is for the GPUs of one job, whose energies it sums. It reads what the streams gained,
keeps the last ``KEPT_S`` of them in memory, and hands ``analyse.device_energy`` only the rows
around the windows: what it costs grows with the windows, not with the length of the run.

The joules differ a little from those of the finished run for the same window, within the sampling
error: what is learned from all of a stream (the offset of the counter, the noise) is learned here
from ``_AROUND_S`` on either side, as far as they are recorded.

Delay, measured on simulated GPUs: ``covered_until_ns`` is 0.6 s (V100) or 0.8 s (A100) behind the
present as a rule and 1.3 s at most, since the recorder writes once a second. Cost: below 2 % of a
core with 10 polls/s, of which most is the energy of each step by itself.

``settle_s`` and ``shortest_block_s`` tell what the sensor of a device can resolve.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from joulewise.analyse.chunks import ChunkReader, Columns, Floats, Ints
from joulewise.analyse.device_energy import bounded_energy
from joulewise.analyse.energy.sensor_timing import ReadingTiming, timing_of
from joulewise.data import Quantity
from joulewise.errors import JoulewiseError
from joulewise.store.layout import MANIFEST, STREAM, StreamKind, stream_path
from joulewise.store.manifest import RecordedDevice, read_manifest
from joulewise.store.trace import StreamFollower
from joulewise.units import NS_PER_S, Z95

KEPT_S: Final = 900.0
"""Seconds of the streams that are kept in memory (chosen): with 50 readings a second 1 MB a device.
A window that begins before them has no energy; doubled, steps may last twice as long."""

# Rows on either side of the windows that are read with them: noise is judged by 32 new values, and
# an offset of the counter by some of its ticks. Chosen: 100 periods of the slowest known sensor.
# Doubled, the energies of windows change by less than their sampling error.
_AROUND_S: Final = 10.0
# Of a stream that is there already when it is followed first: 15 minutes of 50 rows a second. More
# only takes memory (chosen).
_FIRST_B: Final = 2 << 20
# How long the recorder may be silent before that is a fault: it writes every second, and a busy
# machine or a slow disk delays it (chosen). Doubled, a recorder that ended is noticed later.
_SILENT_S: Final = 10.0
# A device is lost where it was polled and has not answered for so long (chosen). Doubled, it is
# noticed later; halved, a driver that is busy for a moment counts as lost.
_UNREAD_S: Final = 3.0
# Until clock and voltage have followed a new power limit. Assumed, as in the simulated boards:
# 0.2 s downwards and 1 s upwards. Doubled, each trial discards a second more.
_CONTROL_LOOP_S: Final = 1.0
# Length of a window whose edges cost 1 %, in periods of what is shown. Measured on simulated V100,
# A100 and RTX 6000 with ResNet-50 (stated error 1.0 to 1.2 %): 1.1 s with 20 ms, 2.5 and 4.2 s with
# 100 ms. Doubled, a block takes twice as long and errs by half a percent.
_PERIODS_PER_BLOCK: Final = 40
# Without a counter, what the sensor does not average over is a sample of the load: the relative
# standard deviation of one reading of a training (between that of ResNet-50 on the simulated V100,
# 0.13, and A100, 0.04). Doubled, such blocks take four times as long.
_READING_SIGMA_SHARE: Final = 0.07
_BLOCK_ERROR_SHARE: Final = 0.01


class LiveEnergy:
    """The energy of some devices of a run under way, named by their keys or uids.

    ``energies`` and ``covered_until_ns`` read what is new on disk. Nothing is raised where a device
    or its stream is not there yet, or no longer: the energies are NaN, and ``fault`` says why.
    """

    def __init__(self, run: Path, devices: Sequence[str]) -> None:
        self._run = run
        self._names = tuple(devices)
        self._manifest_ns = -1
        self._devices: dict[str, _FollowedDevice] = {}

    def covered_until_ns(self) -> int:
        """Up to when windows can end, by what is on disk of all devices; 0 while one has nothing.

        A device that does not answer is polled on: its time is covered, and its energy NaN.
        """
        self._update()
        if len(self._devices) < len(self._names):
            return 0
        return min((each.covered_until_ns() for each in self._devices.values()), default=0)

    def energies(self, windows_ns: Ints) -> tuple[Floats, Floats]:
        """Joules of each window ``(start, end)``, summed over the devices, and their error.

        The error is the sampling error, a 95 % half-width; those of several devices are
        independent. Both are NaN where a device could not be read in all of the window, where the
        window is not covered yet, and where it began more than ``KEPT_S`` ago.
        """
        self._update()
        windows_ns = np.asarray(windows_ns, np.int64).reshape(-1, 2)
        energy_j, variance_j2 = np.zeros(len(windows_ns)), np.zeros(len(windows_ns))
        if len(self._devices) < len(self._names):
            return np.full_like(energy_j, np.nan), np.full_like(energy_j, np.nan)
        if len(windows_ns):
            for each in self._devices.values():
                device_j, error_j = each.energies(windows_ns)
                energy_j += device_j
                variance_j2 += np.square(error_j)
        return energy_j, np.where(np.isnan(energy_j), np.nan, np.sqrt(variance_j2))

    def fault(self, now_ns: int) -> str:
        """Why energies of a device are not known any more; empty where there is no such device."""
        self._update()
        reasons = [each.fault(now_ns) for each in self._devices.values()]
        return next(filter(None, reasons), "")

    def settle_s(self, device: str) -> float:
        """Seconds after a change of a setting from which on a window shows the new power only."""
        return settle_s(*self._timing(device))

    def shortest_block_s(self, device: str) -> float:
        """Length in seconds of a window whose sampling error is about 1 %."""
        return shortest_block_s(*self._timing(device))

    def _timing(self, name: str) -> tuple[ReadingTiming, bool]:
        self._update()
        device = self._devices.get(name)
        if device is None:
            raise JoulewiseError(f"{name} is not among the devices of {self._run.name} yet", "wait")
        return device.timing(), device.has_counter

    def _update(self) -> None:
        self._read_manifest()
        for each in self._devices.values():
            each.update()

    def _read_manifest(self) -> None:
        """Take devices from run.json, which is replaced when one is found late or wakes up."""
        try:
            changed_ns = (self._run / MANIFEST).stat().st_mtime_ns
            if changed_ns == self._manifest_ns:
                return
            manifest = read_manifest(self._run)
        except (OSError, JoulewiseError):
            return
        self._manifest_ns = changed_ns
        for recorded in manifest.devices:
            for name in self._names:
                if name in {recorded.info.key, recorded.info.uid}:
                    known = self._devices.get(name)
                    if known is None:
                        self._devices[name] = _FollowedDevice(self._run, recorded)
                    else:
                        known.recorded = recorded


def settle_s(timing: ReadingTiming, has_counter: bool) -> float:
    """Seconds after a change of a setting from which on a window shows the new power only.

    The control loop, then the lag of the sensor and the time over which a reading averages. A
    counter averages over nothing, and is late by its lag and a tick.
    """
    if has_counter:
        return _CONTROL_LOOP_S + timing.counter_lag_s + max(timing.counter_s, timing.poll_s)
    lag_s = timing.delay_s - timing.window_s / 2
    return _CONTROL_LOOP_S + lag_s + timing.window_s + timing.step_s


def shortest_block_s(timing: ReadingTiming, has_counter: bool) -> float:
    """Length in seconds of a window whose sampling error is about 1 %.

    The edges of a window are known within a period of the sensor, and of its polls where the driver
    keeps no samples. Without a counter, n readings that see only a share of the time have an error
    of 1.96 standard deviations of a reading times √((1 - share) / n).
    """
    shown_s = max(timing.period_s, timing.counter_s)
    shown_s += 0.0 if timing.is_sampled else timing.poll_s
    block_s = _PERIODS_PER_BLOCK * shown_s
    if not has_counter:
        unseen = max(0.0, 1.0 - timing.seen)
        readings = (Z95 * _READING_SIGMA_SHARE / _BLOCK_ERROR_SHARE) ** 2 * unseen
        block_s = max(block_s, readings * max(timing.period_s, timing.step_s))
    return block_s


class _FollowedDevice:
    """The ends of a device's streams, and what is known of its sensor."""

    def __init__(self, run: Path, recorded: RecordedDevice) -> None:
        self.recorded = recorded
        self._timing: ReadingTiming | None = None
        self._fast = _StreamTail(stream_path(run, recorded.info.key, StreamKind.FAST, STREAM))
        self._buffer = _StreamTail(stream_path(run, recorded.info.key, StreamKind.BUFFER, STREAM))

    def update(self) -> None:
        has_new = [self._fast.update(), self._buffer.update()]
        if any(has_new):
            self._timing = None

    @property
    def has_counter(self) -> bool:
        return Quantity.ENERGY.value in self._fast.columns

    def timing(self) -> ReadingTiming:
        """The times of its sensor, by the latest rows."""
        if self._timing is None:
            start_ns = self._fast.last_ns - round(_AROUND_S * NS_PER_S)
            readers = self._readers(start_ns, self._fast.last_ns)
            self._timing = timing_of(self.recorded.card, *readers)
        return self._timing

    def covered_until_ns(self) -> int:
        """The last time whose power is in rows of all streams that its energy is made of."""
        last_ns, sampled_ns = self._fast.last_ns, self._buffer.last_ns
        if not last_ns:
            return 0
        if last_ns - sampled_ns < _UNREAD_S * NS_PER_S:  # else the driver's samples have ended
            last_ns = min(last_ns, sampled_ns)
        timing = self.timing()
        late_s = timing.delay_s + timing.step_s / 2
        if self.has_counter:
            late_s = max(late_s, timing.counter_lag_s + timing.counter_s)
        return last_ns - round(late_s * NS_PER_S)

    def energies(self, windows_ns: Ints) -> tuple[Floats, Floats]:
        unknown = np.full(len(windows_ns), np.nan)
        until_ns = self.covered_until_ns()
        is_known = (windows_ns[:, 1] <= until_ns) & (windows_ns[:, 0] >= self._fast.first_ns)
        energy_j, error_j = unknown, unknown.copy()
        if not is_known.any():
            return energy_j, error_j
        known_ns = windows_ns[is_known]
        around_ns = round(_AROUND_S * NS_PER_S)
        fast, buffer = self._readers(known_ns.min() - around_ns, known_ns.max() + around_ns)
        found, _, at_least = bounded_energy(self.recorded, fast, buffer, known_ns)
        is_whole = ~at_least & np.isfinite(found.energy_j)
        energy_j[is_known] = np.where(is_whole, found.energy_j, np.nan)
        error_j[is_known] = np.where(is_whole, found.error_sampling_j, np.nan)
        return energy_j, error_j

    def fault(self, now_ns: int) -> str:
        key = self.recorded.info.key
        if self.recorded.unavailable is not None and not self._fast.rows:
            return f"{key} cannot be read: {self.recorded.unavailable.reason}"
        silent_s = (now_ns - self._fast.last_ns) / NS_PER_S
        if self._fast.rows and silent_s > _SILENT_S:
            return f"no readings of {key} have been recorded for {silent_s:.0f} s"
        if self._is_unread():
            unread_s = (self._fast.last_ns - self._fast.last_read_ns) / NS_PER_S
            return f"{key} has not answered for {unread_s:.0f} s"
        return ""

    def _is_unread(self) -> bool:
        return self._fast.last_ns - self._fast.last_read_ns > _UNREAD_S * NS_PER_S

    def _readers(self, start_ns: int, end_ns: int) -> tuple[ChunkReader | None, ChunkReader | None]:
        return self._fast.between(start_ns, end_ns), self._buffer.between(start_ns, end_ns)


class _StreamTail:
    """The last ``KEPT_S`` of a growing stream, batch by batch as it was written."""

    def __init__(self, path: Path) -> None:
        self._follower = StreamFollower(path, _FIRST_B)
        self._batches: list[Columns] = []
        self._starts_ns: list[int] = []
        self._ends_ns: list[int] = []
        self.columns: tuple[str, ...] = ()
        self.rows = 0
        self.last_read_ns = 0  # the last row in which power or energy could be read

    @property
    def first_ns(self) -> int:
        return self._starts_ns[0] if self._starts_ns else 0

    @property
    def last_ns(self) -> int:
        return self._ends_ns[-1] if self._ends_ns else 0

    def update(self) -> bool:
        """Add what the stream gained, and forget what is too old; False where nothing is new."""
        last_ns = self.last_ns
        for batch in self._follower.poll():
            t_ns = batch["t_ns"]
            if not len(t_ns):
                continue
            self.columns = tuple(batch)
            self._batches.append(batch)
            self._starts_ns.append(int(t_ns[0]))
            self._ends_ns.append(int(t_ns[-1]))
            self.rows += len(t_ns)
            is_read = np.any(
                [np.isfinite(values) for name, values in batch.items() if name != "t_ns"], axis=0
            )
            if is_read.any():
                self.last_read_ns = int(t_ns[is_read][-1])
            self.last_read_ns = self.last_read_ns or int(t_ns[0])
        kept = bisect_left(self._ends_ns, self.last_ns - round(KEPT_S * NS_PER_S))
        for batch in self._batches[:kept]:
            self.rows -= len(batch["t_ns"])
        del self._batches[:kept], self._starts_ns[:kept], self._ends_ns[:kept]
        return self.last_ns != last_ns

    def between(self, start_ns: int, end_ns: int) -> ChunkReader | None:
        """The batches with rows between two times, as a stream; None where there are none."""
        first = bisect_left(self._ends_ns, start_ns)
        end = bisect_right(self._starts_ns, end_ns)
        return _Batches(self._batches[first:end], self.columns) if first < end else None


class _Batches:
    """A ``ChunkReader`` of some batches, in one chunk."""

    def __init__(self, batches: Sequence[Columns], columns: tuple[str, ...]) -> None:
        self._batches = batches
        self.columns = columns
        self.rows = sum(len(batch["t_ns"]) for batch in batches)

    def chunks(self, columns: Sequence[str]) -> Iterator[Columns]:
        yield {name: np.concatenate([batch[name] for batch in self._batches]) for name in columns}

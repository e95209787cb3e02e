"""A run in progress, for the terminal and the page: followed from what its recorder writes."""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from joulewise.budget import Budget, Verdict, judge, parse_budget
from joulewise.data import Energy, Quantity, listed_keys
from joulewise.data.run_result_json import TOTAL, decode_energy
from joulewise.errors import UsageError
from joulewise.formatting import between, energy, joules, plain, seconds, watts
from joulewise.report.tables import Column, Table
from joulewise.report.views.run import ending, outlook, total_source
from joulewise.report.views.tuning import tuner_state
from joulewise.store.files import read_regular
from joulewise.store.layout import LIVE, MANIFEST, STREAM, TUNING, StreamKind, stream_path
from joulewise.store.manifest import Manifest, RecordedDevice, read_manifest
from joulewise.store.runs import status
from joulewise.store.trace import StreamFollower
from joulewise.store.tuning_file import UnreadableTuningError, load_tuning
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

WINDOW_S: Final = 300
"""How much of the past is kept."""

_NO_FILE: Final = ()  # the stamp of a file that is not there
_STALE_S: Final = 5  # a device that is silent for longer has no power now (chosen)
# How much more of a file is read at first than the window should need, since a file need not have
# grown evenly (chosen). Doubled, opening the view of a long run reads more than it shows.
_SPARE: Final = 1.25


class Second(NamedTuple):
    """The power in one second of the run, counted from when its recording began."""

    at_s: int
    mean_w: float
    low_w: float
    high_w: float


@dataclass(frozen=True)
class DeviceNow:
    """The latest readings of a device; None for what it does not report, or no longer does."""

    key: str
    name: str
    power_w: float | None
    limit_w: float | None
    utilisation_pct: float | None
    clock_mhz: float | None
    temperature_c: float | None
    course: tuple[Second, ...]


class DeviceWatch:
    """Follows a device's streams; its power is from the driver's own samples if there are any."""

    def __init__(self, run: Path, device: RecordedDevice, manifest: Manifest) -> None:
        self._run = run
        self._device = device
        self._key = device.info.key
        self._start_ns = manifest.monotonic_start_ns
        self._started_s = manifest.wall_start_ns / NS_PER_S
        self._stream = StreamKind.FAST
        self._power = self._follow(StreamKind.FAST)
        self._others = self._follow(StreamKind.SLOW)
        self._course = RecentPower(self._start_ns)
        self._readings: dict[str, float] = {}
        self.last_ns = 0

    def poll(self) -> None:
        self._prefer_buffer()
        for rows in self._power.poll():
            self._course.add(rows)
            self.last_ns = max(self.last_ns, int(rows["t_ns"][-1]))
        for rows in self._others.poll():
            self._readings = {name: float(values[-1]) for name, values in rows.items()}

    def now(self, last_ns: int) -> DeviceNow:
        """The state as of ``last_ns``, when any device of the run was last read."""
        course = self._course.seconds()
        # The clock is that of the readings, so that a copied or paused run does not look stale.
        is_stale = last_ns - self.last_ns > _STALE_S * NS_PER_S
        limit_w = self._value(Quantity.ENFORCED_LIMIT)
        if limit_w is None:
            limit_w = self._device.settings.get("power_limit_w")
        return DeviceNow(
            self._key,
            self._device.info.name,
            None if is_stale or not course else course[-1].mean_w,
            limit_w,
            self._value(Quantity.GPU_UTILISATION, Quantity.LOAD),
            self._value(Quantity.SM_CLOCK),
            self._value(Quantity.TEMPERATURE),
            course,
        )

    def _prefer_buffer(self) -> None:
        if (
            self._stream is StreamKind.FAST
            and stream_path(self._run, self._key, StreamKind.BUFFER, STREAM).exists()
        ):
            self._stream = StreamKind.BUFFER
            self._power = self._follow(StreamKind.BUFFER)
            self._course = RecentPower(self._start_ns)

    def _follow(self, stream: StreamKind) -> StreamFollower:
        """Read from where the window begins, as estimated from the growth of the file so far."""
        path = stream_path(self._run, self._key, stream, STREAM)
        share = min(1.0, _SPARE * WINDOW_S / max(time.time() - self._started_s, 1.0))
        size_b = path.stat().st_size if path.exists() else 0
        return StreamFollower(path, math.ceil(share * size_b))

    def _value(self, *quantities: Quantity) -> float | None:
        values = (self._readings.get(quantity.value, math.nan) for quantity in quantities)
        return next((value for value in values if not math.isnan(value)), None)


class RecentPower:
    """Mean, least and greatest power of each second, for the last ``WINDOW_S`` seconds."""

    def __init__(self, start_ns: int) -> None:
        self._start_ns = start_ns
        self._seconds: deque[tuple[int, float, int, float, float]] = deque(maxlen=WINDOW_S)
        self._counted: tuple[int, float] | None = None

    def add(self, rows: dict[str, NDArray[Any]]) -> None:
        t_ns, power_w = rows["t_ns"], self._watts(rows)
        # A driver's own samples begin before the run; those of other devices do not.
        readable = ~np.isnan(power_w) & (t_ns >= self._start_ns)
        t_ns, power_w = t_ns[readable], power_w[readable]
        if not len(t_ns):
            return
        at_s = (t_ns - self._start_ns) // NS_PER_S
        # Readings come in order of time: one pass over the first reading of every second.
        firsts = np.flatnonzero(np.diff(at_s, prepend=at_s[0] - 1))
        sums = np.add.reduceat(power_w, firsts)
        lows, highs = np.minimum.reduceat(power_w, firsts), np.maximum.reduceat(power_w, firsts)
        counts = np.diff(firsts, append=len(at_s))
        for at, total, count, low, high in zip(
            at_s[firsts], sums, counts, lows, highs, strict=True
        ):
            self._add_second(int(at), float(total), int(count), float(low), float(high))

    def seconds(self) -> tuple[Second, ...]:
        return tuple(Second(at, total / n, low, high) for at, total, n, low, high in self._seconds)

    def _add_second(self, at_s: int, total: float, count: int, low: float, high: float) -> None:
        if self._seconds and self._seconds[-1][0] == at_s:
            _, total_before, count_before, low_before, high_before = self._seconds.pop()
            total, count = total + total_before, count + count_before
            low, high = min(low, low_before), max(high, high_before)
        self._seconds.append((at_s, total, count, low, high))

    def _watts(self, rows: dict[str, NDArray[Any]]) -> NDArray[np.float64]:
        """Power as read, or from the differences between readings of the energy counter."""
        if Quantity.POWER.value in rows:
            return rows[Quantity.POWER.value].astype(float)
        t_ns, energy_j = rows["t_ns"], rows[Quantity.ENERGY.value]
        # The first reading of a counter has no power: what it was before is not known.
        t_before, energy_before = self._counted or (t_ns[0], math.nan)
        self._counted = int(t_ns[-1]), float(energy_j[-1])
        with np.errstate(invalid="ignore", divide="ignore"):
            spent_s = np.diff(t_ns, prepend=t_before) / NS_PER_S
            watts = np.diff(energy_j, prepend=energy_before) / spent_s
        return np.where(watts >= 0, watts, np.nan)


@dataclass(frozen=True)
class RunNow:
    """A run as it stands; ``outlook`` and ``energies`` are as of ``told_ns``.

    That is when the recorder last wrote them, 0 before. ``simulated`` are those of ``counted``
    that are simulated devices. ``tuner`` is what the tuner of the run is doing, empty without one.
    ``exit_code`` is None while the command runs.
    """

    id: str
    name: str
    command: str
    state: str
    time_s: float | None
    told_ns: int
    total: Energy | None
    energies: Mapping[str, Energy | None]
    counted: tuple[str, ...]
    simulated: tuple[str, ...]
    outlook: Mapping[str, Any] | None
    budgets: tuple[Budget, ...]
    devices: tuple[DeviceNow, ...]
    tuner: str = ""
    exit_code: int | None = None


class RunWatch:
    """Polls a run in progress, at a cost that does not grow with the length of the run."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self._devices: dict[str, DeviceWatch] = {}
        self._stamp: tuple[int, ...] = _NO_FILE
        self._manifest: Manifest | None = None
        self._live = _Live()
        self._tuner = ""
        self._tuner_stamp: tuple[Any, ...] = ()

    def look(self) -> RunNow:
        """Read what is new, and return the state of the run."""
        manifest = self._read_manifest()
        self._live = _read_live(self.run) or self._live
        for device in manifest.devices:
            if device.sources and device.info.key not in self._devices:
                self._devices[device.info.key] = DeviceWatch(self.run, device, manifest)
        for watch in self._devices.values():
            watch.poll()
        live = self._live
        last_ns = max([live.t_ns, *(watch.last_ns for watch in self._devices.values())])
        starts = [command.start_ns for command in manifest.commands]
        return RunNow(
            id=manifest.id,
            name=manifest.name,
            command=join(manifest.commands[0].arguments) if starts else "",
            state=status(manifest),
            time_s=max(last_ns - min(starts), 0) / NS_PER_S if starts else None,
            told_ns=live.t_ns,
            total=live.energies.get(TOTAL),
            energies=live.energies,
            counted=live.counted,
            simulated=tuple(
                device.info.key
                for device in manifest.devices
                if device.is_simulated and device.info.key in live.counted
            ),
            outlook=live.outlook,
            budgets=_budgets(manifest.options),
            devices=tuple(watch.now(last_ns) for watch in self._devices.values()),
            tuner=self._read_tuner(status(manifest)),
            exit_code=manifest.exit_code,
        )

    def _read_manifest(self) -> Manifest:
        """The manifest, read again only if it was replaced."""
        stamp = _file_stamp(self.run / MANIFEST)
        if self._manifest is None or stamp != self._stamp:
            self._manifest, self._stamp = read_manifest(self.run), stamp
        return self._manifest

    def _read_tuner(self, state: str) -> str:
        """What the tuner is doing, or why that cannot be told; read again only if it changed.

        Also where the ``state`` of the run has: a tuner that was killed with it noted no end.
        """
        stamp = (state, *_file_stamp(self.run / TUNING))
        if stamp != self._tuner_stamp:
            self._tuner_stamp = stamp
            try:
                tuning = load_tuning(self.run)
                self._tuner = "" if tuning is None else tuner_state(tuning)
            except UnreadableTuningError as error:
                self._tuner = plain(error.message)
        return self._tuner


def _file_stamp(path: Path) -> tuple[int, ...]:
    """A value that differs once the file was replaced; ``_NO_FILE`` where there is none."""
    try:
        status = path.stat()
    except OSError:
        return _NO_FILE
    return status.st_ino, status.st_mtime_ns, status.st_size


@dataclass(frozen=True)
class _Live:
    """What the recorder writes of the run so far; empty before it first does."""

    t_ns: int = 0
    energies: Mapping[str, Energy | None] = field(default_factory=dict)
    counted: tuple[str, ...] = ()
    outlook: Mapping[str, Any] | None = None


def _read_live(run: Path) -> _Live | None:
    try:
        live = json.loads(read_regular(run / LIVE))
        energies = {key: decode_energy(it) for key, it in live["energy_j"].items()}
        counted = tuple(live.get("counted", ()))
        outlook = {"at_s": live.get("time_s"), "epochs": live["epochs"], **live["outlook"]}
        return _Live(int(live["t_ns"]), energies, counted, outlook)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _budgets(options: Mapping[str, Any]) -> tuple[Budget, ...]:
    try:
        gco2_per_kwh = options.get("gco2_per_kwh")
        return tuple(parse_budget(text, gco2_per_kwh) for text in options.get("budgets", ()))
    except (UsageError, TypeError):  # written by a newer joulewise, or damaged
        return ()


MINUTE_S: Final = 60
_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_LETTERS: Final = "_.-=+*%#"


def title(now: RunNow) -> str:
    """The id of the run, and its name."""
    return "  ".join(plain(part) for part in (f"run {now.id}", now.name) if part)


def standing(now: RunNow) -> str:
    """``recording · 42.0 s · 9.81 kJ ± 1.8 % (measured, modelled)``."""
    time = "its command has not started" if now.time_s is None else seconds(now.time_s)
    return f"{ending(now.state, now.exit_code, ())} · {time} · {spent(now)}"


def spent(now: RunNow) -> str:
    """The energy so far, and its sources."""
    if now.total is None:
        return "no energy reported yet" if not now.told_ns else "energy unavailable"
    energies = (now.energies.get(key) for key in now.counted)
    sources = [it.source for it in energies if it is not None]
    return f"{energy(now.total)} ({total_source(now.total, now.simulated, sources)})"


def foretold(now: RunNow) -> Iterator[str]:
    """Sentences on the tuner, what the total leaves out, the forecast, and each budget."""
    if now.tuner:
        yield now.tuner
    left_out = [
        device.key
        for device in now.devices
        if now.counted and device.key not in now.counted and now.energies.get(device.key)
    ]
    if left_out:
        yield f"not in the total so far: {plain(listed_keys(left_out))}"
    yield from outlook(now.outlook)
    for budget in now.budgets:
        yield plain(_budget(now, budget))


def device_table(now: RunNow, columns: int, encoding: str) -> Table:
    """A row for each device, for a terminal with that many columns."""
    # 64 columns are left for the others (chosen); the chart has at most a sign for every second.
    width = min(max(columns - 64, 12 if columns >= 44 else 10), MINUTE_S)
    signs = _BLOCKS if _has(encoding, _BLOCKS) else _LETTERS
    return Table(
        "",
        (
            Column("device", right=False),
            Column("power"),
            Column("limit", spare=2),
            Column("minute", right=False, spare=4),
            Column("load", spare=3),
            Column("clock", spare=6),
            Column("temp.", spare=5),
            Column("energy", spare=1),
        ),
        tuple(
            (
                plain(device.key),
                watts(device.power_w),
                watts(device.limit_w),
                sparkline(device, width, signs),
                *cells(device),
                energy(now.energies[device.key]) if device.key in now.energies else "-",
            )
            for device in now.devices
        ),
    )


def cells(device: DeviceNow) -> tuple[str, str, str]:
    """Utilisation, clock, temperature."""
    return (
        _figure(device.utilisation_pct, "%"),
        _figure(device.clock_mhz, "MHz"),
        _figure(device.temperature_c, "°C"),
    )


def scale_w(device: DeviceNow) -> float:
    """The top of a device's chart: its limit, or the greatest power where that is more."""
    return max([device.limit_w or 0.0, *(second.high_w for second in device.course), 1.0])


def sparkline(device: DeviceNow, width: int, signs: str = _BLOCKS) -> str:
    """The power of the last minute in ``width`` signs; a blank is a time without a reading."""
    if not device.course:
        return ""
    top, step_s = scale_w(device), MINUTE_S / width
    first_s = device.course[-1].at_s + 1 - MINUTE_S
    parts: list[list[Second]] = [[] for _ in range(width)]
    for second in device.course:
        if second.at_s >= first_s:
            parts[int((second.at_s - first_s) / step_s)].append(second)
    return "".join(_sign(part, top, signs) for part in parts)


def _sign(part: Sequence[Second], top: float, signs: str) -> str:
    if not part:
        return " "
    mean_w = sum(second.mean_w for second in part) / len(part)
    return signs[min(int(mean_w / top * len(signs)), len(signs) - 1)]


_VERDICTS: Final[Mapping[Verdict, str]] = {
    "foreseen": "it will be exceeded",
    "possible": "it may be exceeded",
    "sufficient": "it will suffice",
}


def _budget(now: RunNow, budget: Budget) -> str:
    of_time = budget.kind == "time"
    taken = now.time_s if of_time else None if now.total is None else now.total.value
    name = f"budget {budget.text}"
    if taken is None:
        return f"{name}: use not known yet"
    is_bound = not of_time and now.total is not None and now.total.at_least
    used = f"{name}: {'at least ' if is_bound else ''}{_share(taken, budget)} used"
    whole = (now.outlook or {}).get("time_s" if of_time else "energy_j") or {}
    high = math.inf if whole.get("at_least") else whole.get("high", math.inf)
    verdict = judge(budget.limit, taken, whole.get("low", -math.inf), high)
    if verdict == "exceeded":
        return f"{used}, exceeded"
    if not whole:
        return used
    expected = (
        f"at least {joules(whole['low'])}"
        if whole.get("at_least")
        else between(whole["low"], whole["high"], "s" if of_time else "J")
    )
    return f"{used}; {_VERDICTS[verdict]} ({expected} expected)"


def _share(taken: float, budget: Budget) -> str:
    percent = 100 * taken / budget.limit
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.1f} %"


def _figure(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.0f} {unit}"


def _has(encoding: str, signs: str) -> bool:
    try:
        signs.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True

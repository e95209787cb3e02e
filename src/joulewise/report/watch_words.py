"""What a run in progress has come to, in words: for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from joulewise.data import listed_keys
from joulewise.report.figures import between, energy, joules, plain, seconds, watts
from joulewise.report.outlook import outlook
from joulewise.report.run_view import source_parts
from joulewise.report.tables import Column, Table
from joulewise.report.watch import RunNow
from joulewise.report.watch_device import DeviceNow, Second
from joulewise.session.budget import Budget

MINUTE_S: Final = 60
_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_LETTERS: Final = "_.-=+*%#"


def title(now: RunNow) -> str:
    return "  ".join(plain(part) for part in (f"run {now.id}", now.name) if part)


def standing(now: RunNow) -> str:
    """``recording · 42.0 s · 9.81 kJ ± 1.8 % (mixed)``."""
    time = "its command has not begun" if now.time_s is None else seconds(now.time_s)
    return f"{now.state} · {time} · {spent(now)}"


def spent(now: RunNow) -> str:
    if now.total is None:
        return "no energy told yet" if not now.told_ns else "energy unavailable"
    return f"{energy(now.total)} ({', '.join(source_parts(now.total, now.simulated))})"


def foretold(now: RunNow) -> Iterator[str]:
    """What the total leaves out so far, the outlook, and each budget."""
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
    """A row for each device, for a terminal of so many columns."""
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
    """What the top of its figure stands for: the limit, or what it drew where that is more."""
    return max([device.limit_w or 0.0, *(second.high_w for second in device.course), 1.0])


def sparkline(device: DeviceNow, width: int, signs: str = _BLOCKS) -> str:
    """The last minute in so many signs; a blank is a time without a reading."""
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


def _budget(now: RunNow, budget: Budget) -> str:
    of_time = budget.kind == "time"
    taken = now.time_s if of_time else None if now.total is None else now.total.value
    name = f"budget {budget.text}"
    if taken is None:
        return f"{name}: nothing is known of it yet"
    is_bound = not of_time and now.total is not None and now.total.at_least
    used = f"{name}: {'at least ' if is_bound else ''}{_share(taken, budget)} used"
    if taken > budget.limit:
        return f"{used}, which is more than all of it"
    whole = (now.outlook or {}).get("time_s" if of_time else "energy_j")
    if not whole:
        return used
    if whole.get("at_least"):
        will = "it will be exceeded" if whole["low"] > budget.limit else "it may be exceeded"
        return f"{used}; {will} (at least {joules(whole['low'])} expected)"
    verdict = _verdict(whole["low"], whole["high"], budget.limit)
    within = between(whole["low"], whole["high"], "s" if of_time else "J")
    return f"{used}; {verdict} ({within} expected)"


def _verdict(low: float, high: float, limit: float) -> str:
    if low > limit:
        return "it will be exceeded"
    return "it may be exceeded" if high > limit else "it will do"


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

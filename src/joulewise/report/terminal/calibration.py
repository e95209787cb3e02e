"""What ``calibrate`` found, as JSON and as a table beside the published values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from joulewise import formatting
from joulewise.calibrate.board import Calibration
from joulewise.calibrate.response import is_long_average
from joulewise.data import Quantity, SensorProfile, Unavailable
from joulewise.record.sensor_profiles import CalibratedValue, SensorTiming
from joulewise.report.tables import new_rich_table
from joulewise.report.terminal.layout import indent, print_command
from joulewise.units import Z95

# Relative difference from which a measured value contradicts the published one, or two sensors are
# different ones (chosen: published values are rounded, and boards differ by less).
_DIFFERENT: Final = 0.1


def as_json(boards: list[Calibration]) -> dict[str, Any]:
    """The documented form of ``calibrate --json``."""
    return {"gpus": [_board_json(board) for board in boards]}


def draw(boards: list[Calibration], console: Console, *, simulated: bool = False) -> None:
    """Draw a table and warnings for each board, and what to run next."""
    stored = "stored for as long as this simulation lasts, in" if simulated else "stored in"
    for board in boards:
        info = board.info
        console.print(Text.assemble((info.key, "bold"), f"  {info.name}, driver {info.driver}"))
        indent(_table(board), console)
        for line in warnings(board):
            console.print(Text(f"  {line}", style="yellow"), soft_wrap=True)
        if board.path is not None:
            console.print(Text(f"  {stored} {board.path}"), soft_wrap=True)
        console.print()
    for command, what in _next(boards):
        print_command(command, what, console)


def warnings(board: Calibration) -> list[str]:
    """What could not be calibrated, and where the board differs from the published values."""
    found: list[str] = []
    if board.earlier is not None:
        found.append(f"{board.earlier.reason}: it was not used")
    for quantity, timing in board.sensors.items():
        name = formatting.SENSORS[quantity]
        if isinstance(timing, Unavailable):
            found.append(f"{name}: not calibrated: {_reason(timing)}")
            continue
        table = board.tables.get(quantity, SensorProfile())
        for what, figure, published_s in (
            ("update period", timing.update_period_s, table.update_period_s),
            ("averaging window", timing.window_s, table.window_s),
        ):
            if not figure or not published_s:
                continue
            if abs(figure.value - published_s) > figure.error + _DIFFERENT * published_s:
                published = formatting.duration(published_s)
                found.append(f"{name}: its {what} is {_time(figure)}, published is {published}")
        if quantity is Quantity.POWER and is_long_average(timing):
            found.append(
                "power is averaged over about a second: short spans appear late and smoothed"
            )
    if isinstance(board.gain, Unavailable):
        found.append(f"gain: not known from the meter: {_reason(board.gain)}")
    return found


def _reason(lack: Unavailable) -> str:
    return f"{lack.reason} ({lack.fix})" if lack.fix else lack.reason


def _board_json(board: Calibration) -> dict[str, Any]:
    def figure(value: CalibratedValue | Unavailable | None) -> dict[str, float] | None:
        return asdict(value) if isinstance(value, CalibratedValue) else None

    stored = board.card
    return {
        "device": board.info.key,
        "name": board.info.name,
        "uid": board.info.uid,
        "driver": board.info.driver,
        "sensors": {
            quantity.value: None if isinstance(timing, Unavailable) else asdict(timing)
            for quantity, timing in board.sensors.items()
        },
        "tables": {
            quantity.value: {"update_period_s": card.update_period_s, "window_s": card.window_s}
            for quantity, card in board.tables.items()
            if quantity in board.sensors
        },
        "counter_period_s": figure(board.counter_period_s),
        "gain": figure(stored.gain if stored else board.gain),
        "gain_how": stored.gain_how if stored else "",
        "card": None if board.path is None else str(board.path),
        "warnings": warnings(board),
    }


def _table(board: Calibration) -> Table:
    table = new_rich_table()
    table.add_column("")
    shown = dict(_distinct_sensors(board))
    for quantity in shown:
        table.add_column(formatting.SENSORS[quantity], justify="right")
        table.add_column("published", justify="right", style="dim")
    for name, cells in _rows(board, shown):
        table.add_row(name, *cells)
    return table


def _distinct_sensors(board: Calibration) -> Iterator[tuple[Quantity, SensorTiming]]:
    """The sensors with different averaging windows: instant power may equal the plain one."""
    seen: list[float] = []
    for quantity, timing in board.sensors.items():
        if isinstance(timing, SensorTiming) and timing.window_s is not None:
            window_s = timing.window_s.value
            if all(abs(window_s - other) > _DIFFERENT * other for other in seen):
                yield quantity, timing
            seen.append(window_s)


def _rows(
    board: Calibration, shown: Mapping[Quantity, SensorTiming]
) -> Iterator[tuple[str, list[str]]]:
    def row(name: str, cell: Any) -> tuple[str, list[str]]:
        return name, [
            text for q, t in shown.items() for text in cell(t, board.tables.get(q, SensorProfile()))
        ]

    yield row(
        "update period",
        lambda t, c: (_time(t.update_period_s), formatting.duration(c.update_period_s)),
    )
    yield row("averaging window", lambda t, c: (_time(t.window_s), formatting.duration(c.window_s)))
    yield row("lag", lambda t, _: (_time(t.lag_s), "-"))
    yield row("share of time not measured", lambda t, c: (_share(t.unseen_share), _unseen(c)))
    yield row("new values, busy", lambda t, c: (_rate(t.rate_busy_hz), _pace(c)))
    yield row("new values, idle", lambda t, c: (_rate(t.rate_idle_hz), _pace(c)))
    if isinstance(board.counter_period_s, CalibratedValue):
        first = next(iter(board.tables.values()), SensorProfile())
        yield (
            "energy counter",
            [_time(board.counter_period_s), formatting.duration(first.counter_period_s)],
        )
    gain = board.card.gain if board.card else None
    prior = f"1 ± {_percent(Z95 * SensorProfile().gain_sigma)}"
    measured = f"{gain.value:.3f} ± {_percent(gain.error)}" if gain else "needs a wall meter"
    yield "calibration factor (gain)", [measured, prior]


def _next(boards: list[Calibration]) -> Iterator[tuple[str, str]]:
    if any(board.path for board in boards):
        yield (
            "joulewise run -- python train.py",
            "its errors are now computed from this calibration",
        )
    if any(board.card and board.card.gain is None for board in boards):
        meter = "joulewise calibrate --meter FILE.csv --psu-efficiency 0.94±0.01"
        yield meter, "with the log of a wall meter, also the calibration factor"


def _time(figure: CalibratedValue | None) -> str:
    if figure is None:
        return "-"
    unit, factor = ("s", 1.0) if figure.value >= 1 else ("ms", 1e3)
    return formatting.with_error(figure.value * factor, figure.error * factor, unit)


def _share(figure: CalibratedValue | None) -> str:
    return "-" if figure is None else f"{_percent(figure.value)} ± {_percent(figure.error)}"


def _unseen(card: SensorProfile) -> str:
    if card.update_period_s is None or card.window_s is None:
        return "-"
    return f"{100 * max(0.0, 1 - card.window_s / card.update_period_s):.0f} %"


def _rate(figure: CalibratedValue | None) -> str:
    return "-" if figure is None else formatting.with_error(figure.value, figure.error, "Hz", 1)


def _pace(card: SensorProfile) -> str:
    return "-" if card.update_period_s is None else f"{1 / card.update_period_s:g} Hz"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"

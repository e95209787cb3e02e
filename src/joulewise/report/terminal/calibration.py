"""What ``calibrate`` found, as JSON and as a table beside what was known before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from joulewise import formatting
from joulewise.calibrate.board import Calibration
from joulewise.calibrate.response import is_long_average
from joulewise.data import Quantity, SensorProfile, Unavailable
from joulewise.record.sensor_profiles import CalibratedValue, SensorTiming
from joulewise.units import Z95

_TELLING: Final = 0.1  # relative: the tables are rounded, and boards differ by less


def as_json(boards: list[Calibration]) -> dict[str, Any]:
    return {"gpus": [_board_json(board) for board in boards]}


def draw(boards: list[Calibration], console: Console, *, simulated: bool = False) -> None:
    kept = "kept for as long as this simulation lasts, in" if simulated else "kept in"
    for board in boards:
        info = board.info
        console.print(Text.assemble((info.key, "bold"), f"  {info.name}, driver {info.driver}"))
        console.print(Padding(_table(board), (0, 0, 0, 2)))
        for line in warnings(board):
            console.print(Text(f"  {line}", style="yellow"), soft_wrap=True)
        if board.path is not None:
            console.print(Text(f"  {kept} {board.path}"), soft_wrap=True)
        console.print()
    for command, what in _next(boards):
        console.print(Text.assemble("  ", (command, "cyan"), f"  # {what}"), soft_wrap=True)


def warnings(board: Calibration) -> list[str]:
    """What could not be told, and where the board differs from its tables."""
    found: list[str] = []
    if board.earlier is not None:
        found.append(f"{board.earlier.reason}: it was not used")
    for quantity, timing in board.sensors.items():
        name = formatting.SENSORS[quantity]
        if isinstance(timing, Unavailable):
            found.append(f"{name}: not calibrated: {_reason(timing)}")
            continue
        table = board.tables.get(quantity, SensorProfile())
        for what, figure, told_s in (
            ("update period", timing.update_period_s, table.update_period_s),
            ("averaging window", timing.window_s, table.window_s),
        ):
            if figure and told_s and abs(figure.value - told_s) > figure.error + _TELLING * told_s:
                told = formatting.duration(told_s)
                found.append(f"{name}: its {what} is {_time(figure)}, the tables say {told}")
        if quantity is Quantity.POWER and is_long_average(timing):
            found.append("power is a mean over about a second: short spans show late and smoothed")
    if isinstance(board.gain, Unavailable):
        found.append(f"gain: not told by the meter: {_reason(board.gain)}")
    return found


def _reason(lack: Unavailable) -> str:
    return f"{lack.reason} ({lack.fix})" if lack.fix else lack.reason


def _board_json(board: Calibration) -> dict[str, Any]:
    def figure(found: CalibratedValue | Unavailable | None) -> dict[str, float] | None:
        return asdict(found) if isinstance(found, CalibratedValue) else None

    kept = board.card
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
        "gain": figure(kept.gain if kept else board.gain),
        "gain_how": kept.gain_how if kept else "",
        "card": None if board.path is None else str(board.path),
        "warnings": warnings(board),
    }


def _table(board: Calibration) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("")
    shown = dict(_told_apart(board))
    for quantity in shown:
        table.add_column(formatting.SENSORS[quantity], justify="right")
        table.add_column("tables say", justify="right", style="dim")
    for name, cells in _rows(board, shown):
        table.add_row(name, *cells)
    return table


def _told_apart(board: Calibration) -> Iterator[tuple[Quantity, SensorTiming]]:
    """Instant power only where it is another reading than the plain one."""
    seen: list[float] = []
    for quantity, timing in board.sensors.items():
        if isinstance(timing, SensorTiming) and timing.window_s is not None:
            window_s = timing.window_s.value
            if all(abs(window_s - other) > _TELLING * other for other in seen):
                yield quantity, timing
            seen.append(window_s)


def _rows(
    board: Calibration, shown: Mapping[Quantity, SensorTiming]
) -> Iterator[tuple[str, list[str]]]:
    def row(name: str, cell: Any) -> tuple[str, list[str]]:
        return name, [
            text for q, t in shown.items() for text in cell(t, board.tables.get(q, SensorProfile()))
        ]

    yield row("update period", lambda t, c: (_time(t.update_period_s), _known(c.update_period_s)))
    yield row("averaging window", lambda t, c: (_time(t.window_s), _known(c.window_s)))
    yield row("lag", lambda t, _: (_time(t.lag_s), "-"))
    yield row("unseen", lambda t, c: (_share(t.unseen_share), _unseen(c)))
    yield row("new values, busy", lambda t, c: (_rate(t.rate_busy_hz), _pace(c)))
    yield row("new values, idle", lambda t, c: (_rate(t.rate_idle_hz), _pace(c)))
    if isinstance(board.counter_period_s, CalibratedValue):
        first = next(iter(board.tables.values()), SensorProfile())
        yield "energy counter", [_time(board.counter_period_s), _known(first.counter_period_s)]
    kept = board.card.gain if board.card else None
    prior = f"1 ± {_percent(Z95 * SensorProfile().gain_sigma)}"
    yield "gain", [f"{kept.value:.3f} ± {_percent(kept.error)}" if kept else "no meter yet", prior]


def _next(boards: list[Calibration]) -> Iterator[tuple[str, str]]:
    if any(board.path for board in boards):
        yield "joulewise run -- python train.py", "its errors rest on these cards from now on"
    if any(board.card and board.card.gain is None for board in boards):
        meter = "joulewise calibrate --meter FILE.csv --psu-efficiency 0.94±0.01"
        yield meter, "with a wall meter's log, the gain too"


def _time(figure: CalibratedValue | None) -> str:
    if figure is None:
        return "-"
    unit, factor = ("s", 1.0) if figure.value >= 1 else ("ms", 1e3)
    value, error = figure.value * factor, figure.error * factor
    decimals = next((d for d in range(4) if error >= 0.95 * 10**-d), 3)
    shown = f"{error:.{decimals}f}" if error >= 0.5e-3 else "<0.001"
    return f"{value:.{decimals}f} ± {shown} {unit}"


def _known(seconds: float | None) -> str:
    return formatting.duration(seconds)


def _share(figure: CalibratedValue | None) -> str:
    return "-" if figure is None else f"{figure.value:.1%} ± {_percent(figure.error)}"


def _unseen(card: SensorProfile) -> str:
    if card.update_period_s is None or card.window_s is None:
        return "-"
    return f"{max(0.0, 1 - card.window_s / card.update_period_s):.0%}"


def _rate(figure: CalibratedValue | None) -> str:
    return "-" if figure is None else f"{figure.value:.1f} ± {figure.error:.1f} Hz"


def _pace(card: SensorProfile) -> str:
    return "-" if card.update_period_s is None else f"{1 / card.update_period_s:g} Hz"


def _percent(share: float) -> str:
    return f"{share:.1%}"

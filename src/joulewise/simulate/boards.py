"""The boards that can be simulated, read from ``boards/NAME.toml``."""

from __future__ import annotations

import random
import sys
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache
from importlib import resources
from typing import Any, Final, get_args, get_type_hints

from joulewise.errors import UsageError, did_you_mean
from joulewise.simulate.model import Board, BoardUnit
from joulewise.units import NS_PER_S

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

BOARDS: Final = ("v100", "v100-pcie", "rtx6000", "a100", "laptop", "gh200")
# Chosen, since nobody has published a counter's lag: some units have hardly any, some twice as
# much, and an analysis that holds for all of them does not rest on one figure.
_COUNTER_LAG_SIGMA: Final = 0.4
_COUNTER_LAG_MOST: Final = 2.2


@cache
def load_board(key: str) -> Board:
    if key not in BOARDS:
        raise UsageError(
            f"no such GPU to simulate: {key!r}",
            f"{did_you_mean(key, BOARDS)}take one of {', '.join(BOARDS)}",
        )
    text = (resources.files(__package__) / "boards" / f"{key}.toml").read_text("utf-8")
    board: Board = _build(Board, {"key": key, **tomllib.loads(text)})
    return board


def make_unit(board: Board, seed: int) -> BoardUnit:
    """One physical board: gain and phase of its sensor, phase and lag of its counter, by seed."""
    draw = random.Random(f"{board.key} {seed}")  # noqa: S311 (physics, not secrets)
    gain = draw.gauss(1.0, board.sensor.gain_sigma)
    sensor_phase_ns = draw.randrange(_ns(board.sensor.period_s))
    counter_phase_ns = _draw_counter_phase_ns(board, draw)
    lag = min(max(draw.gauss(1.0, _COUNTER_LAG_SIGMA), 0.0), _COUNTER_LAG_MOST)
    counter_lag_ns = _ns(board.sensor.counter_lag_s * lag)
    return BoardUnit(board, seed, gain, sensor_phase_ns, counter_phase_ns, counter_lag_ns)


def restart_unit(unit: BoardUnit, seed: int) -> BoardUnit:
    """The same board at another time: its ticks and noise are others, gain and lag are not."""
    draw = random.Random(f"counter {seed}")  # noqa: S311 (physics, not secrets)
    return replace(
        unit,
        seed=seed,
        sensor_phase_ns=seed % _ns(unit.board.sensor.period_s),
        counter_phase_ns=_draw_counter_phase_ns(unit.board, draw),
    )


def _draw_counter_phase_ns(board: Board, draw: random.Random) -> int:
    period_ns = _ns(board.sensor.counter_period_s)
    return draw.randrange(period_ns) if period_ns else 0


def _ns(time_s: float) -> int:
    return round(time_s * NS_PER_S)


def _build(kind: Any, table: dict[str, Any]) -> Any:
    """A data class from a table of the same shape; one too many or too few is an error."""
    hints = get_type_hints(kind)
    values = {
        name: _build(part, value)
        if (part := _dataclass_in(hints.get(name)))
        else tuple(value)
        if isinstance(value, list)
        else value
        for name, value in table.items()
    }
    known = {field.name for field in fields(kind)}
    needed = {field.name for field in fields(kind) if field.default is MISSING}
    if not needed <= set(values) <= known:
        raise ValueError(f"{kind.__name__}: keys {sorted(values)}")
    return kind(**values)


def _dataclass_in(hint: Any) -> Any:
    """The data class that a type stands for, alone or as ``X | None``; None where it is none."""
    return next((one for one in (hint, *get_args(hint)) if is_dataclass(one)), None)

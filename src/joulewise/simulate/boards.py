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
# A unit's counter lag relative to its board's: standard deviation and upper bound. Chosen, since
# nobody has published a counter's lag: some units have hardly any, some twice as much, so that an
# analysis that holds for all of them does not depend on one figure. Doubled, most units would be at
# 0 or at the bound.
_COUNTER_LAG_SIGMA: Final = 0.4
_COUNTER_LAG_MAX: Final = 2.2


@cache
def load_board(key: str) -> Board:
    """The board of that key; UsageError where there is none."""
    if key not in BOARDS:
        raise UsageError(
            f"no such GPU to simulate: {key!r}",
            f"{did_you_mean(key, BOARDS)}choose one of {', '.join(BOARDS)}",
        )
    text = (resources.files(__package__) / "boards" / f"{key}.toml").read_text("utf-8")
    board: Board = _build(Board, {"key": key, **tomllib.loads(text)})
    return board


def make_unit(board: Board, seed: int) -> BoardUnit:
    """One physical board: the seed decides gain and phases of its sensor, and its counter's lag."""
    draw = random.Random(f"{board.key} {seed}")  # noqa: S311 (physics, not secrets)
    gain = draw.gauss(1.0, board.sensor.gain_sigma)
    sensor_phase_ns = draw.randrange(_ns(board.sensor.period_s))
    counter_phase_ns = _draw_counter_phase_ns(board, draw)
    lag = min(max(draw.gauss(1.0, _COUNTER_LAG_SIGMA), 0.0), _COUNTER_LAG_MAX)
    counter_lag_ns = _ns(board.sensor.counter_lag_s * lag)
    return BoardUnit(board, seed, gain, sensor_phase_ns, counter_phase_ns, counter_lag_ns)


def restart_unit(unit: BoardUnit, seed: int) -> BoardUnit:
    """The same board at another time: other ticks and noise, the same gain and lag."""
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
    """A data class from a table of the same shape; ValueError where a key is missing or unknown."""
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
    """The data class in a type ``X`` or ``X | None``; None where there is none."""
    return next((kind for kind in (hint, *get_args(hint)) if is_dataclass(kind)), None)

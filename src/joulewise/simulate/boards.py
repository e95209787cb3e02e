"""The boards that can be simulated, read from ``boards/NAME.toml``."""

from __future__ import annotations

import random
import sys
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import resources
from typing import Any, Final, get_type_hints

from joulewise.errors import UsageError
from joulewise.simulate.model import Board, Unit
from joulewise.units import NS_PER_S

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

BOARDS: Final = ("v100", "v100-pcie", "rtx6000", "a100", "laptop")


@cache
def load_board(key: str) -> Board:
    if key not in BOARDS:
        raise UsageError(f"no such GPU to simulate: {key!r}", f"take one of {', '.join(BOARDS)}")
    text = (resources.files(__package__) / "boards" / f"{key}.toml").read_text("utf-8")
    board: Board = _build(Board, {"key": key, **tomllib.loads(text)})
    return board


def make_unit(board: Board, seed: int) -> Unit:
    """One physical board: what the seed makes of its sensor's gain and phase."""
    draw = random.Random(f"{board.key} {seed}")  # noqa: S311 (physics, not secrets)
    gain = draw.gauss(1.0, board.sensor.gain_sigma)
    return Unit(board, seed, gain, draw.randrange(round(board.sensor.period_s * NS_PER_S)))


def _build(kind: Any, table: dict[str, Any]) -> Any:
    """A data class from a table of the same shape; a key too many or too few is an error."""
    hints = get_type_hints(kind)
    values = {
        name: _build(hints[name], value)
        if is_dataclass(hints[name])
        else tuple(value)
        if isinstance(value, list)
        else value
        for name, value in table.items()
    }
    if set(values) != {field.name for field in fields(kind)}:
        raise ValueError(f"{kind.__name__}: keys {sorted(values)}")
    return kind(**values)

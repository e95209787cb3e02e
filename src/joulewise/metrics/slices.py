"""The settings of a sweep along one axis, all others held."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from joulewise.data.sweeps import Setting


@dataclass(frozen=True)
class Slice:
    """Rows with a number on the axis, in its order; ``where`` is what they have in common."""

    axis: str
    where: Setting
    rows: tuple[int, ...]
    values: tuple[float, ...]


@lru_cache(maxsize=64)
def slices(settings: tuple[Setting, ...], axis: str) -> tuple[Slice, ...]:
    found: dict[Setting, list[tuple[float, int]]] = {}
    for row, setting in enumerate(settings):
        value = setting.get(axis)
        if isinstance(value, int | float):
            found.setdefault(_others(setting, axis), []).append((float(value), row))
    return tuple(
        Slice(axis, where, tuple(row for _, row in at), tuple(value for value, _ in at))
        for where, at in ((where, sorted(at)) for where, at in found.items())
    )


def _others(setting: Setting, axis: str) -> Setting:
    return Setting(tuple(item for item in setting.values if item[0] != axis))

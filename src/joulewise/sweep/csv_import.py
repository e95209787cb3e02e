"""Measurements of other tools, read as a sweep: a CSV file with a row for each run.

Columns are ``time_s`` and ``energy_j`` (or ``power_w``, the mean), ``block`` where runs were made
in rounds, ``samples`` and ``epochs`` where it is known how many a run trained on. Every other
column is a setting: ``power_limit_w``, ``sm_clock_mhz``, ``batch_size``…
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from joulewise.data import Energy, Source
from joulewise.data.sweeps import (
    CONTROL_AXES,
    POWER_LIMIT,
    Setting,
    Sweep,
    Trial,
    TrialState,
    Value,
    Work,
)
from joulewise.errors import UsageError

_TIME, _ENERGY, _POWER, _BLOCK = "time_s", "energy_j", "power_w", "block"
_WORKS: Final = {"samples": "sample", "epochs": "epoch"}
"""Columns that say how much work a run did, and the name of one piece of it."""

_FIGURES: Final = {_TIME, _ENERGY, _POWER, _BLOCK, *_WORKS}
_CELL_HINT: Final = "correct that cell, or remove its row"
_HINT: Final = "it needs time_s, energy_j or power_w, and a column for each setting"


def read_table(path: Path, reference: Mapping[str, str] | None = None) -> Sweep:
    """Read the runs of a file as the trials of a sweep.

    ``reference`` has the values of some settings. The reference is the setting with the highest
    power limit among those that have these values, or among all where it is None.

    Raises:
        UsageError: it is no such file; the message names the line.
    """
    numbered = _rows(path)
    headings = numbered[0][1]
    names = [name for name in headings if name not in _FIGURES]
    if not names or _TIME not in headings or not {_ENERGY, _POWER} & set(headings):
        raise UsageError(f"{path} is not a table of runs", _HINT)
    counts: Counter[Setting] = Counter()
    trials = []
    for number, row in numbered:
        try:
            trial = _trial(row, names, counts)
        except ValueError as error:
            raise UsageError(f"{path}, line {number}: {error}", _CELL_HINT) from None
        counts[trial.setting] += 1
        trials.append(trial)
    settings = tuple(dict.fromkeys(trial.setting for trial in trials))
    limits_w = [float(w) for setting in settings if (w := setting.get(POWER_LIMIT)) is not None]
    return Sweep(
        id=path.stem,
        asked={},
        seed=0,
        reference=_reference(settings, reference or {}, path),
        settings=settings,
        trials=tuple(trials),
        name=path.name,
        state="finished",
        limits_w=(min(limits_w), max(limits_w), max(limits_w)) if limits_w else None,
        is_table=True,
    )


def _rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    """Each row with the number of the line in which it ends."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.DictReader(lines)
            rows = [(reader.line_num, _named_cells(row, reader.line_num)) for row in reader]
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "name a CSV file") from None
    except (ValueError, csv.Error) as error:
        raise UsageError(f"{path} is not a CSV file: {error}", "name a CSV file") from None
    if not rows:
        raise UsageError(f"{path} has no rows", _HINT)
    return rows


def _named_cells(row: Mapping[str | None, str | None], line: int) -> dict[str, str]:
    """The cells of a row by their headings; DictReader has those without a heading under None."""
    if None in row:
        raise ValueError(f"line {line} has more cells than there are headings")
    return {name.strip(): value or "" for name, value in row.items() if name is not None}


def _trial(row: Mapping[str, str], names: Sequence[str], counts: Mapping[Setting, int]) -> Trial:
    setting = Setting.of({name: _value(name, row[name].strip()) for name in names})
    time_s = _number(row, _TIME)
    by_power = bool(row.get(_POWER)) and not row.get(_ENERGY)
    energy_j = _number(row, _POWER) * time_s if by_power else _number(row, _ENERGY)
    block = row.get(_BLOCK, "")
    energy = {"gpu": Energy(energy_j, 0.0, 0.0, Source.MEASURED)}
    return Trial(
        setting,
        int(_parse(_BLOCK, block, int)) if block else counts[setting],
        TrialState.DONE,
        time_s=time_s,
        energy=energy,
        spans={
            name: Work(_count(row, column), time_s, energy)
            for column, name in _WORKS.items()
            if row.get(column)
        },
    )


def _parse(name: str, text: str, kind: type[int | float] = float) -> float:
    try:
        return kind(text)
    except ValueError:
        what = "whole number" if kind is int else "number"
        raise ValueError(f"column {name} has {text!r}, not a {what}") from None


def _count(row: Mapping[str, str], name: str) -> int:
    value = _number(row, name)
    if not value.is_integer():
        raise ValueError(f"column {name} has {row[name]!r}, not a whole number")
    return int(value)


def _value(name: str, text: str) -> Value:
    if name not in CONTROL_AXES:
        return text
    if not text:
        return None
    value = _parse(name, text)
    if not math.isfinite(value):
        raise ValueError(f"column {name} has {text!r}, not a finite number")
    return value


def _number(row: Mapping[str, str], name: str) -> float:
    text = row.get(name)
    if not text:
        raise ValueError(f"column {name} is empty")
    value = _parse(name, text)
    if not 0 < value < math.inf:
        raise ValueError(f"column {name} has {text!r}, not a finite number above 0")
    return value


def _reference(settings: Sequence[Setting], given: Mapping[str, str], path: Path) -> Setting:
    """The setting with all of the given values, and of several the one with the highest limit."""
    unknown = set(given) - set(settings[0])
    if unknown:
        raise UsageError(
            f"{path} has no column {min(unknown)}", f"its settings are {', '.join(settings[0])}"
        )
    text = ", ".join(f"{name}={value}" for name, value in given.items())
    try:
        wanted = {name: _value(name, value) for name, value in given.items()}
    except ValueError:
        raise UsageError(f"--reference {text} has no number", "as in power_limit_w=300") from None
    matching = [
        setting for setting in settings if all(setting[name] == v for name, v in wanted.items())
    ]
    if not matching:
        raise UsageError(f"{path} has no run with {text}", "name a reference that was run")
    limits_w = ((setting.get(POWER_LIMIT), setting) for setting in matching)
    return max(limits_w, key=lambda pair: math.inf if pair[0] is None else float(pair[0]))[1]

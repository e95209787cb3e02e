"""A sweep as its file has it, and back."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from joulewise.data.energy import Energy
from joulewise.data.migration import name_simulated_sweep
from joulewise.data.sweeps import Sweep, Trial
from joulewise.record.checksums import with_checksum
from joulewise.record.plain import decode, encode

SWEEP_FORMAT: Final = 1


def as_text(sweep: Sweep, lines: Iterable[str] | None = None) -> str:
    """The file's content, a trial a line; ``lines`` are those of its trials, where known."""
    told = {"format": SWEEP_FORMAT, **encode(replace(sweep, trials=()))}
    del told["trials"]
    head = json.dumps(told, indent=1, allow_nan=False).removesuffix("\n}")
    trials = ",\n  ".join(map(as_line, sweep.trials) if lines is None else lines)
    return with_checksum(f'{head},\n "trials": [\n  {trials}\n ]\n}}\n')


def as_line(trial: Trial) -> str:
    return json.dumps(encode(_sound(trial)), allow_nan=False)


def from_json(told: Any) -> Sweep:
    """What :func:`as_text` wrote; anything else is a ValueError.

    Keys that it has and we do not know are passed over.
    """
    if not isinstance(told, dict) or told.get("format") != SWEEP_FORMAT:
        raise ValueError("no sweep of a format that is known")
    name_simulated_sweep(told)
    try:
        return decode(Sweep, told)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"no sweep: {error}") from None


def _sound(trial: Trial) -> Trial:
    """Without joules that are no numbers: JSON has no word for them, and a figure must be one."""
    works = {
        name: replace(work, energy=_known(work.energy))
        for name, work in trial.spans.items()
        if math.isfinite(work.time_s)
    }
    return replace(trial, energy=_known(trial.energy), bounds=_known(trial.bounds), spans=works)


def _known(energies: Mapping[str, Energy]) -> dict[str, Energy]:
    return {name: each for name, each in energies.items() if _is_known(each)}


def _is_known(energy: Energy) -> bool:
    figures = energy.value, energy.error_sampling, energy.error_gain
    return all(map(math.isfinite, figures))

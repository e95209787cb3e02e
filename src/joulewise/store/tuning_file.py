"""tuning.json in a run directory: what a tuner is doing, or did."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from joulewise.data.codec import decode, encode
from joulewise.errors import JoulewiseError
from joulewise.store.files import is_file, read_regular_bytes, replace_file
from joulewise.store.layout import TUNING

if TYPE_CHECKING:
    from joulewise.data.sweeps import Setting
    from joulewise.data.tuning import FittedSetting, SettingSteps, StepEstimate, Tuning

_LARGEST: Final = 2.0**53  # up to which a float has every integer: no time, energy or count is more
_HINT: Final = "the energy of the run is not affected; what was tuned is shown nowhere"


class UnreadableTuningError(JoulewiseError):
    """tuning.json is damaged, or of a newer version."""


def write_tuning(run: Path, tuning: Tuning, *, durable: bool = True) -> None:
    """Replace the file as a whole; OSError where that fails."""
    from joulewise.store.checksums import with_checksum

    text = json.dumps(encode(tuning), indent=1, allow_nan=False)
    replace_file(run / TUNING, with_checksum(text), durable=durable)


def read_tuning(run: Path) -> Tuning | None:
    """The tuning of a run; None where there was none, or where its file cannot be read."""
    try:
        return load_tuning(run) if is_file(run / TUNING) else None
    except UnreadableTuningError:
        return None


def load_tuning(run: Path) -> Tuning | None:
    """The tuning of a run, None where there was none; raises UnreadableTuningError."""
    from joulewise.data.tuning import TUNING_FORMAT, Tuning
    from joulewise.store.checksums import read_checked_json, read_checksums

    if not is_file(run / TUNING):
        if TUNING in read_checksums(run).files:
            raise UnreadableTuningError(f"{TUNING} is gone", _HINT)
        return None
    try:
        payload = read_checked_json(read_regular_bytes(run / TUNING))
        written = payload.get("format") if isinstance(payload, dict) else None
        if isinstance(written, int) and written > TUNING_FORMAT:
            message = f"{TUNING} was written by a newer joulewise (format {written})"
            raise UnreadableTuningError(message, "show the run with that version")
        tuning = decode(Tuning, payload)
        problem = _find_problem(tuning)
    except FileNotFoundError:  # deleted at this moment
        return None
    except OSError as error:
        raise UnreadableTuningError(
            f"{TUNING} cannot be read: {error.strerror or error}", _HINT
        ) from None
    except (ValueError, OverflowError) as error:  # also msgspec's, and those of a checksum
        raise UnreadableTuningError(f"{TUNING} is damaged: {error}", _HINT) from None
    if problem:
        raise UnreadableTuningError(f"{TUNING} is damaged: {problem}", _HINT)
    return tuning


def _find_problem(tuning: Tuning) -> str:
    """What no tuner writes and nothing could be computed from; empty if there is no such thing."""
    if tuning.format < 1:
        return f"there is no format {tuning.format}"
    if not all(0 <= abs(number) < _LARGEST for number in _numbers(encode(tuning))):
        return "a number is too large"
    measured: tuple[SettingSteps | FittedSetting, ...] = (*tuning.tried, *tuning.fitted)
    if not all(_is_positive(one.step_time_s) for one in measured):
        return "a step takes no time"
    if not all(math.isfinite(one.step_energy_j.mean) for one in measured):
        return "a step has no energy"
    settings = [tuning.reference, tuning.chosen, *(one.settings for one in measured)]
    settings += [phase.settings for phase in tuning.phases]
    if not all(map(_is_setting, settings)):
        return "a setting is not a number"
    if any(phase.end_s < phase.start_s for phase in tuning.phases):
        return "a phase ends before it begins"
    return ""


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _numbers(item)
    elif isinstance(value, int | float):
        yield value


def _is_positive(estimate: StepEstimate) -> bool:
    return all(end is None or end > 0 for end in (estimate.mean, estimate.low, estimate.high))


def _is_setting(setting: Setting | None) -> bool:
    values = setting.controls.values() if setting is not None else ()
    return all(value is None or isinstance(value, int | float) for value in values)

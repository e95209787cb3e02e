"""tuning.json in a run directory: what a tuner is doing, or did."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from joulewise.data.codec import decode, encode
from joulewise.errors import JoulewiseError
from joulewise.store.files import (
    is_file,
    read_regular_bytes,
    replace_by_reserve,
    replace_file,
)
from joulewise.store.layout import TUNING, TUNING_RESERVE

if TYPE_CHECKING:
    from joulewise.data.sweeps import Setting
    from joulewise.data.tuning import FittedSetting, SettingSteps, StepEstimate, Tuning, TuningEnd

_LARGEST: Final = 2.0**53  # up to which a float has every integer: no time, energy or count is more
KILLED_TUNER: Final = "the tuner was killed"
_RESERVE_B: Final = 128 << 10
"""Chosen: three times a tuning over two axes (38 to 43 kB, measured). A longer one is not stored
on a full disk."""
_HINT: Final = "the energy of the run is not affected; what was tuned is shown nowhere"


class UnreadableTuningError(JoulewiseError):
    """tuning.json is damaged, or of a newer version."""


def write_tuning(run: Path, tuning: Tuning, *, durable: bool = True) -> None:
    """Replace the file as a whole; OSError where that fails."""
    replace_file(run / TUNING, _text(tuning), durable=durable)


def reserve_last_tuning(run: Path) -> None:
    """Reserve disk space for the last tuning.json, in case the disk is full by then."""
    reserve = run / TUNING_RESERVE
    try:
        # Random bytes, because a file system that compresses would not store zeros.
        reserve.write_bytes(os.urandom(_RESERVE_B))
    except OSError:
        reserve.unlink(missing_ok=True)


def write_last_tuning(run: Path, tuning: Tuning) -> None:
    """Write the file once the tuner has ended, in the space that was reserved for it.

    OSError where that fails.
    """
    try:
        replace_by_reserve(run / TUNING, _text(tuning), run / TUNING_RESERVE)
    except OSError:  # there is no reserve, or no more, or not enough of it
        (run / TUNING_RESERVE).unlink(missing_ok=True)
        write_tuning(run, tuning)


def _text(tuning: Tuning) -> str:
    from joulewise.store.checksums import with_checksum

    return with_checksum(json.dumps(encode(tuning), indent=1, allow_nan=False))


def write_early_end(run: Path, end: TuningEnd) -> None:
    """Note that a tuner has ended which could not do so itself; nothing where it wrote no file.

    OSError where that fails.
    """
    try:
        tuning = _load_stored(run)
    except UnreadableTuningError:
        return
    if tuning is not None:
        write_last_tuning(run, with_early_end(tuning, end))


def with_early_end(tuning: Tuning, end: TuningEnd) -> Tuning:
    """The tuning as it is once its tuner has ended; an end that is noted already is kept.

    Of such an end, only whether the settings are back may become known later.
    """
    from joulewise.data.tuning import TuningPhase, TuningState

    if tuning.state is TuningState.ENDED:
        known = tuning.early_end
        if known is not None and known.is_restored is None and known.reason == end.reason:
            known = replace(known, is_restored=end.is_restored)
        return replace(tuning, early_end=known)
    last_s = tuning.phases[-1].end_s if tuning.phases else 0.0
    end_s = max(end.at_s, last_s)
    return replace(
        tuning,
        state=TuningState.ENDED,
        reason=tuning.reason if tuning.settled else end.reason,
        phases=(*tuning.phases, TuningPhase(TuningState.ENDED, None, end_s, end_s)),
        early_end=replace(end, at_s=end_s),
    )


def read_tuning(run: Path) -> Tuning | None:
    """The tuning of a run; None where there was none, or where its file cannot be read."""
    try:
        return load_tuning(run) if is_file(run / TUNING) else None
    except UnreadableTuningError:
        return None


def load_tuning(run: Path) -> Tuning | None:
    """The tuning of a run, None where there was none; raises UnreadableTuningError.

    Where the run is over and its tuner noted no end, both were killed: the end is the last that is
    known.
    """
    tuning = _load_stored(run)
    return None if tuning is None else _with_end_of_run(run, tuning)


def _load_stored(run: Path) -> Tuning | None:
    """As it was written."""
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


def _with_end_of_run(run: Path, tuning: Tuning) -> Tuning:
    from joulewise.data.tuning import TuningEnd, TuningState
    from joulewise.store.manifest import read_manifest
    from joulewise.store.runs import RECORDING, status

    if tuning.state is TuningState.ENDED:
        return tuning
    try:
        is_over = status(read_manifest(run)) != RECORDING
    except JoulewiseError:  # whoever shows the run says so
        return tuning
    last_s = tuning.phases[-1].end_s if tuning.phases else 0.0
    return with_early_end(tuning, TuningEnd(last_s, KILLED_TUNER)) if is_over else tuning


def _find_problem(tuning: Tuning) -> str:
    """What no tuner writes and nothing could be computed from; empty if there is no such thing."""
    if tuning.format < 1:
        return f"there is no format {tuning.format}"
    # What the program logged, and what the user asked for, may be of any size.
    measured_part = replace(tuning, program_metrics=(), max_slowdown=None)
    if not all(abs(number) < _LARGEST for number in _numbers(encode(measured_part))):
        return "a number is too large"
    logged = [encode(metric) for metric in tuning.program_metrics]
    if not all(map(math.isfinite, _numbers([*logged, tuning.max_slowdown]))):
        return "a figure is not finite"
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

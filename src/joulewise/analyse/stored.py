"""What a stored run came to, computed at most once."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from joulewise.analyse.kept import read_undamaged_result, write_result
from joulewise.data import Caution, RunResult, RunWarning
from joulewise.record.checksums import DamagedJsonError
from joulewise.record.layout import RESULT
from joulewise.record.store import RECORDING


def result_of(run: Path) -> RunResult:
    """The kept result where there is one that fits, else computed, and kept if the run is over."""
    kept, damage = None, ""
    try:
        kept = read_undamaged_result(run)
    except DamagedJsonError as error:
        damage = str(error)
    if kept is not None and kept.state != RECORDING:
        return kept
    from joulewise.analyse.run import analyse

    result = analyse(run)
    if damage:
        result = replace(result, warnings=(_computed_again(damage), *result.warnings))
    if result.state != RECORDING:
        with suppress(OSError):  # a store that is only read is no reason to show nothing
            write_result(run, result)
    return result


def _computed_again(damage: str) -> RunWarning:
    return RunWarning(
        Caution.DAMAGED,
        f"{RESULT} was damaged: {damage}; the figures were computed again from what was recorded",
        "nothing, where the rest of the run is whole; look after the disk",
    )

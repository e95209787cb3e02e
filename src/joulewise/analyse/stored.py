"""What a stored run came to, computed at most once."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from joulewise.analyse.kept import read_undamaged_result, write_result
from joulewise.data import Caution, RunResult, RunWarning
from joulewise.record.checksums import DamagedJsonError
from joulewise.record.layout import RESULT
from joulewise.record.manifest import read_manifest
from joulewise.record.store import RECORDING

_OF_FILES: Final = frozenset({Caution.DAMAGED, Caution.IMPLAUSIBLE})


def result_of(run: Path) -> RunResult:
    """The kept result where there is one that fits, else computed, and kept if the run is over.

    One that was computed from damaged files, or while a disk did not answer, fits as long as the
    same is wrong with them: a file that is put back from a copy has it computed again.
    """
    kept, damage = None, ""
    try:
        kept = read_undamaged_result(run)
    except DamagedJsonError as error:
        damage = str(error)
    if kept is not None and kept.state != RECORDING and _is_damage_unchanged(run, kept):
        return kept
    from joulewise.analyse.run import analyse

    result = analyse(run)
    if damage:
        result = replace(result, warnings=(_computed_again(damage), *result.warnings))
    if result.state != RECORDING:
        with suppress(OSError):  # a store that is only read is no reason to show nothing
            write_result(run, result)
    return result


def _is_damage_unchanged(run: Path, result: RunResult) -> bool:
    """Whether the files that a result says are damaged still are, and in the same way."""
    said = {
        each.message
        for each in result.warnings
        if each.code in _OF_FILES and not each.message.startswith(RESULT)
    }
    if not said:
        return True
    from joulewise.analyse.damage import SoundLanes

    found = SoundLanes(run, read_manifest(run)).find_warnings()
    return said == {each.message for each in found}


def _computed_again(damage: str) -> RunWarning:
    return RunWarning(
        Caution.DAMAGED,
        f"{RESULT} was damaged: {damage}; the figures were computed again from what was recorded",
        "nothing, where the rest of the run is whole; check the disk",
    )

"""What a stored run came to, computed at most once."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from joulewise.analyse.kept import read_result, write_result
from joulewise.data import RunResult
from joulewise.record.store import RECORDING


def result_of(run: Path) -> RunResult:
    """The kept result where there is one that fits, else computed, and kept if the run is over."""
    kept = read_result(run)
    if kept is not None and kept.state != RECORDING:
        return kept
    from joulewise.analyse.run import analyse

    result = analyse(run)
    if result.state != RECORDING:
        with suppress(OSError):  # a store that is only read is no reason to show nothing
            write_result(run, result)
    return result

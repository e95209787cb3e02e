"""Outcomes of tries on their way to the job store: files, from before they are told until they are.

A database may be lost while a training runs, or a process end while it waits for it. The outcome is
therefore first written into the store of runs; where it could not be told, it is at the next
``joulewise job run``. A try has a key, and is told once however often that is tried. The file says
which database it was: one of another database is kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from joulewise.data.codec import decode, encode
from joulewise.data.jobs import TryOutcome
from joulewise.errors import ForgottenJobError, JoulewiseError
from joulewise.store.files import read_regular, replace_file

if TYPE_CHECKING:
    from joulewise.optimise.recurring.store.job_store import JobStore

FOLDER: Final = ".untold-tries"
_SUFFIX: Final = ".json"


@dataclass(frozen=True)
class UntoldOutcome:
    """An outcome of a try, and the job store that is to be told, as it may be shown."""

    database: str
    outcome: TryOutcome


def write_outcome(store: Path, key: str, untold: UntoldOutcome) -> Path:
    """Write the outcome of the try with this key; raises OSError where that fails."""
    folder = store / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{key}{_SUFFIX}"
    replace_file(path, json.dumps(encode(untold), indent=1))
    return path


def drop_outcome(store: Path, key: str) -> None:
    """Delete the file of an outcome that has been told."""
    with suppress(OSError):
        (store / FOLDER / f"{key}{_SUFFIX}").unlink()


def _untold_outcomes(store: Path) -> Iterator[tuple[str, UntoldOutcome]]:
    """The keys and outcomes that were not told; damaged files are left out."""
    for path in sorted((store / FOLDER).glob(f"*{_SUFFIX}")):
        with suppress(OSError, ValueError):
            yield path.stem, decode(UntoldOutcome, json.loads(read_regular(path)))


def tell_kept_outcomes(jobs: JobStore, store: Path, say: Callable[[str], None]) -> None:
    """Tell the outcomes that could not be told before; those of other databases are kept."""
    for key, untold in _untold_outcomes(store):
        run = untold.outcome.run or "-"
        try:
            if jobs.tell(key, untold.outcome):
                say(f"told the job store of run {run}, which it had missed")
        except ForgottenJobError as error:
            if untold.database != jobs.shown:
                continue
            say(f"run {run}: {error.message}")
        except (JoulewiseError, ValueError):  # it is lost again, or no outcome of a try
            continue
        drop_outcome(store, key)

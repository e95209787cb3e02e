"""Outcomes of tries that could not be told to the job store: kept as files until they can be.

A database may be lost while a training runs. Its outcome is then written into the store of runs,
and told at the next ``joulewise job run``. A try has a key, and is told once however often that is
tried. The file does not say which database it was: whoever has a key of another one keeps it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from joulewise.data.codec import decode, encode
from joulewise.data.jobs import TryOutcome
from joulewise.errors import JoulewiseError
from joulewise.store.files import read_regular, replace_file

if TYPE_CHECKING:
    from joulewise.optimise.recurring.store.job_store import JobStore

FOLDER: Final = ".untold-tries"
_SUFFIX: Final = ".json"


def keep_outcome(store: Path, key: str, outcome: TryOutcome) -> Path:
    """Write the outcome of the try with this key; raises OSError where that fails."""
    folder = store / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{key}{_SUFFIX}"
    replace_file(path, json.dumps(encode(outcome), indent=1))
    return path


def _kept_outcomes(store: Path) -> Iterator[tuple[str, TryOutcome]]:
    """The keys and outcomes that were kept; damaged files are left out."""
    for path in sorted((store / FOLDER).glob(f"*{_SUFFIX}")):
        with suppress(OSError, ValueError):
            yield path.stem, decode(TryOutcome, json.loads(read_regular(path)))


def _drop_outcome(store: Path, key: str) -> None:
    """Forget an outcome that has been told."""
    with suppress(OSError):
        (store / FOLDER / f"{key}{_SUFFIX}").unlink()


def tell_kept_outcomes(jobs: JobStore, store: Path, say: Callable[[str], None]) -> None:
    """Tell the outcomes that could not be told before; those of other databases are kept."""
    for key, outcome in _kept_outcomes(store):
        try:
            jobs.tell(key, outcome)
        except (JoulewiseError, ValueError):  # of another database, or no outcome of a try
            continue
        _drop_outcome(store, key)
        say(f"told the job store of run {outcome.run or '-'}, which it had missed")

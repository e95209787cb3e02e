"""Finding what an address names: among what lies in the store, never by making a path of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from joulewise.errors import JoulewiseError, UsageError
from joulewise.record.layout import SWEEPS

LINK: Final = "a link, and nothing outside of the store is shown here"
Stamp = tuple[tuple[str, int, int], ...]


class NotThereError(UsageError):
    """Nothing in the store has that name."""


def run_folder(store: Path, name: str) -> Path:
    if name == SWEEPS:
        raise _not_there("run", name)
    return _entry(store, "run", name)


def sweep_folder(store: Path, name: str) -> Path:
    if (store / SWEEPS).is_symlink():
        raise _not_there("sweep", name)
    return _entry(store / SWEEPS, "sweep", name)


def stamp(folder: Path) -> Stamp:
    """What tells whether anything in it has changed; a link in it is an error."""
    return tuple(sorted(_stamps(folder)))


def leads_out(folder: Path, *files: str) -> str:
    """Why it is not shown, empty where it can be: it, or one of these files, is a link."""
    for path in (folder, *(folder / file for file in files)):
        if path.is_symlink():
            return f"{path} is {LINK}"
    return ""


def _entry(folder: Path, what: str, name: str) -> Path:
    try:
        with os.scandir(folder) as entries:
            found = any(e.name == name and e.is_dir(follow_symlinks=False) for e in entries)
    except OSError:
        found = False
    if not found:
        raise _not_there(what, name)
    return folder / name


def _stamps(folder: Path) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                raise JoulewiseError(
                    f"{entry.path} is {LINK}", "copy what it leads to into the store"
                )
            if entry.is_dir():
                yield from _stamps(Path(entry.path))
                continue
            with suppress(FileNotFoundError):  # replaced at this very moment
                told = entry.stat()
                yield entry.path, told.st_mtime_ns, told.st_size


def _not_there(what: str, name: str) -> NotThereError:
    return NotThereError(f"there is no {what} {name[:60]!r} in this store", "go back to the list")

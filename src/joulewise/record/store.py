"""The folder that holds the runs: making one, finding one, telling how it ended."""

from __future__ import annotations

import calendar
import errno
import os
import platform
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from joulewise.command.alive import boot_id, is_alive, pid_namespace
from joulewise.errors import JoulewiseError, UsageError
from joulewise.record.layout import MANIFEST, MARKS, SWEEPS, TRACE
from joulewise.record.manifest import (
    Manifest,
    RecorderRecord,
    read_manifest,
    working_directory,
    write_manifest,
)
from joulewise.units import NS_PER_S

FOLDER: Final = "joulewise-runs"
LAST: Final = "last"
_STAMP: Final = "%Y%m%d-%H%M%S"
_ID: Final = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")
RECORDING, KILLED = "recording", "killed"
COMPLETE, STOPPED_BY_BUDGET = "complete", "stopped by budget"
STATES: Final = (RECORDING, COMPLETE, STOPPED_BY_BUDGET, "stopped", KILLED)
ENDED_IN_ORDER: Final = (COMPLETE, STOPPED_BY_BUDGET)
"""The states of runs that were recorded up to the end of their command."""

_SILENT_NS: Final = 90 * NS_PER_S  # a recorder saves run.json every 30 s
ELSEWHERE: Final = "name another with --store DIR or $JOULEWISE_STORE"
_REMEDIES: Final = {
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "make it writable, or "),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "make room there, or "),
}


def default_store(environ: Mapping[str, str] | None = None) -> Path:
    named = (os.environ if environ is None else environ).get("JOULEWISE_STORE")
    return Path(named) if named else Path(FOLDER)


def new_run(store: Path, now_s: float | None = None) -> Path:
    """Make a run's directory, with what is known of it before anything is."""
    try:
        run = new_directory(store, now_s)
        try:
            write_manifest(run, _first_manifest(run))
            (run / TRACE).mkdir()
            (run / MARKS).mkdir()
        except BaseException:
            shutil.rmtree(run, ignore_errors=True)
            raise
    except OSError as error:
        raise not_made("run", store, error) from None
    return run


def not_made(what: str, store: Path, error: OSError) -> JoulewiseError:
    do = _REMEDIES.get(error.errno or 0, "")
    return JoulewiseError(f"cannot make a {what} in {store}: {error.strerror}", f"{do}{ELSEWHERE}")


def new_directory(store: Path, now_s: float | None = None) -> Path:
    """An empty one for a run, named by the time (UTC) as no other is."""
    stamp = time.strftime(_STAMP, time.gmtime(now_s))
    store.mkdir(parents=True, exist_ok=True)
    while True:
        run = store / f"{stamp}-{secrets.token_hex(2)}"
        with suppress(FileExistsError):
            run.mkdir()
            return run


def _first_manifest(run: Path) -> Manifest:
    """Written before anything is known: who is killed while it looks for devices leaves a run."""
    return Manifest(
        id=run.name,
        commands=(),
        cwd=working_directory(),
        rate_hz=0.0,
        wall_start_ns=time.time_ns(),
        monotonic_start_ns=time.monotonic_ns(),
        boot_id=boot_id(),
        recorder=RecorderRecord.of_this_process(),
        host={"name": platform.node()},
    )


@dataclass(frozen=True)
class Skipped:
    """What lies in a store and is not a run that can be read."""

    path: Path
    reason: str


def runs(store: Path) -> Iterator[Path]:
    """The runs of a store by name; whatever else lies there is passed over."""
    for path in _directories(store):
        if (path / MANIFEST).is_file():
            yield path


def readable(store: Path) -> Iterator[tuple[Path, Manifest] | Skipped]:
    """What cannot be read with the reason, then every run, oldest first.

    No run is in the way of the others; only a store that is there and cannot be listed is an error.
    """
    found = []
    for path in _directories(store):
        told = _told(path)
        if isinstance(told, Skipped):
            yield told
        else:
            found.append((path, told))
    yield from sorted(found, key=lambda each: each[1].wall_start_ns)


def status(manifest: Manifest) -> str:
    """How a run stands: one of ``STATES``; killed where nobody records it any more."""
    if manifest.state != RECORDING:
        return manifest.state
    return RECORDING if manifest.recorder and _lives(manifest, manifest.recorder) else KILLED


def _lives(manifest: Manifest, recorder: RecorderRecord) -> bool:
    """Of another node or container only what it writes is seen, not whether its process lives."""
    name = platform.node()
    ours = manifest.boot_id == boot_id() and manifest.host.get("name", name) == name
    if ours and recorder.pid_namespace in {"", pid_namespace()}:
        return is_alive(recorder.pid, recorder.started_ticks)
    return time.time_ns() - recorder.saved_wall_ns < _SILENT_NS


def find(store: Path, which: str) -> Path:
    """The run that is meant: a path, an id, the beginning of one, a name, or ``last``."""
    path = Path(which)
    if (path / MANIFEST).is_file():
        return path
    if which != LAST and path.name == which and _is_run(store / which):
        return store / which
    found = list(runs(store))
    if not found:
        raise UsageError(
            f"there are no runs in {store}", f"joulewise run -- CMD… makes one; or {ELSEWHERE}"
        )
    if which == LAST:
        return max(found, key=_started_ns)
    by_id = [run for run in found if run.name.startswith(which)] if which else []
    meant = by_id or named(store, which)
    if not meant:
        raise UsageError(
            f"{store} has no run {which!r}", f"joulewise ls lists them; or {ELSEWHERE}"
        )
    if by_id and len(by_id) > 1:
        raise UsageError(
            f"{which!r} begins {len(by_id)} runs: {_some(by_id)}", "give more of the id"
        )
    return meant[-1]  # a name may be used again: the newest is meant


def in_progress(store: Path) -> Path | None:
    """The newest run that is being recorded."""
    found = [each for each in readable(store) if not isinstance(each, Skipped)]
    return next((run for run, told in reversed(found) if status(told) == RECORDING), None)


def _is_run(path: Path) -> bool:
    """Also a directory whose maker was killed before it could write a manifest."""
    return (path / MANIFEST).is_file() or (bool(_ID.fullmatch(path.name)) and path.is_dir())


def named(store: Path, name: str) -> list[Path]:
    """The runs of that name, oldest first."""
    found = [each for each in readable(store) if not isinstance(each, Skipped)]
    return [run for run, manifest in found if name and manifest.name == name]


def check_is_no_link(run: Path) -> None:
    """Raise where the run lies elsewhere: others may link to it, too."""
    if run.is_symlink():
        raise UsageError(
            f"{run} is a link to a run elsewhere", f"remove the link yourself: rm {run}"
        )


def remove(run: Path) -> None:
    """Delete a run for good, unless it is being recorded."""
    if _status(run) == RECORDING:
        raise UsageError(f"{run.name} is being recorded", "end its command first")
    check_is_no_link(run)
    try:
        shutil.rmtree(run)
    except OSError as error:
        raise JoulewiseError(
            f"cannot remove {run}: {error.strerror or error}", "see who owns it: ls -l"
        ) from None


def _directories(store: Path) -> list[Path]:
    try:
        return sorted(path for path in store.iterdir() if path.is_dir() and path.name != SWEEPS)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(
            f"cannot read {store}: {error.strerror}", f"have its owner open it, or {ELSEWHERE}"
        ) from None


def _started_ns(run: Path) -> int:
    """Of one that cannot be read its name may tell."""
    told = _told(run)
    if isinstance(told, Manifest):
        return told.wall_start_ns
    with suppress(ValueError):
        return calendar.timegm(time.strptime(run.name.rpartition("-")[0], _STAMP)) * NS_PER_S
    return 0


def _status(run: Path) -> str:
    told = _told(run)
    return status(told) if isinstance(told, Manifest) else ""


def _told(run: Path) -> Manifest | Skipped:
    try:
        return read_manifest(run)
    except JoulewiseError as error:
        return Skipped(run, error.message)


def _some(found: list[Path]) -> str:
    names = [run.name for run in found]
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")

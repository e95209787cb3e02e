"""The folder that holds the runs: making one, finding one, telling how it ended.

The first line of result.json: what a run came to, without its spans and details.
"""

from __future__ import annotations

import calendar
import errno
import json
import os
import platform
import re
import secrets
import shutil
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

from joulewise.data.contract import RESULT_FORMAT, check_types
from joulewise.errors import JoulewiseError, UsageError, did_you_mean
from joulewise.process.linux import boot_id, is_alive, pid_namespace
from joulewise.store.checksums import DamagedJsonError, read_checked_json
from joulewise.store.files import is_entry_folder, is_file, is_folder, open_regular
from joulewise.store.layout import MANIFEST, MARKS, RESULT, SWEEPS, TRACE
from joulewise.store.manifest import (
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

SILENT_NS: Final = 90 * NS_PER_S
"""So long after its last sign of life a process elsewhere counts as killed: a recorder saves
``run.json`` every 30 s, and a sweep renews its lock as often."""

_SUGGESTED: Final = 1000
"""So many runs have their names compared with one that is not there. Chosen: 0.1 s at most."""
ELSEWHERE: Final = "name another with --store DIR or $JOULEWISE_STORE"
_REMEDIES: Final = {
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "make it writable, or "),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "make room there, or "),
}


def default_store(environ: Mapping[str, str] | None = None) -> Path:
    named = (os.environ if environ is None else environ).get("JOULEWISE_STORE")
    return Path(named) if named else Path(FOLDER)


def new_run(store: Path, now_s: float | None = None, run_id: str = "") -> Path:
    """Make a run's directory, with what is known of it before anything is.

    Its name is ``run_id``, or a new id where that is empty. A directory of that name is an error.
    """
    try:
        run = _make_directory(store, run_id) if run_id else new_directory(store, now_s)
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


def new_id(now_s: float | None = None) -> str:
    """Make the id of a run or sweep: the time in UTC, and four random hexadecimal digits."""
    return f"{time.strftime(_STAMP, time.gmtime(now_s))}-{secrets.token_hex(2)}"


def new_directory(store: Path, now_s: float | None = None) -> Path:
    """An empty one for a run, named by the time (UTC) as no other is."""
    while True:
        with suppress(FileExistsError):
            return _make_directory(store, new_id(now_s))


def _make_directory(store: Path, run_id: str) -> Path:
    if not _ID.fullmatch(run_id):
        raise UsageError(f"{run_id!r} is not the id of a run", "unset JOULEWISE_RUN_ID")
    store.mkdir(parents=True, exist_ok=True)
    (store / run_id).mkdir()
    return store / run_id


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
        if is_file(path / MANIFEST):
            yield path


def readable(store: Path) -> Iterator[tuple[Path, Manifest] | Skipped]:
    """What cannot be read with the reason, then every run, oldest first: all of them are read.

    No run is in the way of the others; only a store that is there and cannot be listed is an error.
    """
    found = []
    for path in _directories(store):
        told = _told(path)
        if isinstance(told, Skipped):
            yield told
        else:
            found.append((path, told))
    yield from sorted(found, key=lambda each: order_of(each[0], each[1].wall_start_ns))


@dataclass(frozen=True)
class RecorderSign:
    """What tells whether a recorder lives: where it runs, and when it last wrote ``run.json``."""

    boot_id: str
    host: str | None
    pid: int
    started_ticks: int
    saved_wall_ns: int
    pid_namespace: str


def sign_of(manifest: Manifest) -> RecorderSign | None:
    recorder = manifest.recorder
    if recorder is None:
        return None
    return RecorderSign(
        manifest.boot_id,
        manifest.host.get("name"),
        recorder.pid,
        recorder.started_ticks,
        recorder.saved_wall_ns,
        recorder.pid_namespace,
    )


def status(manifest: Manifest) -> str:
    """How a run stands: one of ``STATES``; killed where nobody records it any more."""
    return state_of(manifest.state, sign_of(manifest))


def state_of(state: str, sign: RecorderSign | None) -> str:
    """The same of what its manifest says, and of its recorder's sign of life."""
    if state != RECORDING:
        return state
    return RECORDING if sign and _lives(sign) else KILLED


def _lives(sign: RecorderSign) -> bool:
    """Of another node or container only what it writes is seen, not whether its process lives."""
    ours = sign.boot_id == boot_id() and sign.host in {None, platform.node()}
    if ours and sign.pid_namespace in {"", pid_namespace()}:
        return is_alive(sign.pid, sign.started_ticks)
    return time.time_ns() - sign.saved_wall_ns < SILENT_NS


@dataclass(frozen=True)
class FoundRun:
    """``alike`` is how many runs have the name that was given, of which this is the newest."""

    path: Path
    alike: int = 1


def find(store: Path, which: str) -> Path:
    """The run that is meant: a path, an id, the beginning of one, a name, or ``last``."""
    return resolve_run(store, which).path


def resolve_run(store: Path, which: str) -> FoundRun:
    """The same, and whether others have the same name.

    Ids begin with the time: for ``last`` and for the beginning of an id the names of the folders
    are enough, and no other run is read. Names are looked up in the index.
    """
    path = Path(which)
    if is_file(path / MANIFEST):
        return FoundRun(path)
    if which != LAST and path.name == which and _is_run(store / which):
        return FoundRun(store / which)
    if which == LAST:
        last = _last(store)
        if last is not None:
            return FoundRun(last)
    elif which:
        by_id = beginning(store, which)
        if len(by_id) > 1:
            raise UsageError(
                f"{which!r} begins {len(by_id)} runs: {_some(by_id)}", "give more of the id"
            )
        meant = by_id or named(store, which)
        if meant:  # a name may be used again: the newest is meant
            return FoundRun(meant[-1], len(meant))
    if which == LAST or next(runs(store), None) is None:
        raise UsageError(
            f"there are no runs in {store}", f"joulewise run -- CMD… makes one; or {ELSEWHERE}"
        )
    raise UsageError(
        f"{store} has no run {which!r}",
        f"{did_you_mean(which, [LAST, *run_names(store)])}joulewise ls lists them; or {ELSEWHERE}",
    )


def beginning(store: Path, start: str) -> list[Path]:
    """The runs whose folder's name begins so, by name; only they are looked at."""
    names = sorted(name for name in _names(store) if name.startswith(start))
    return [store / name for name in names if is_file(store / name / MANIFEST)]


def in_progress(store: Path) -> Path | None:
    """The newest run that is being recorded."""
    from joulewise.store.index.conditions import text_is
    from joulewise.store.index.run_entry import find_runs

    found = find_runs(store, text_is("state", RECORDING))
    return found[-1].path if found else None


def _is_run(path: Path) -> bool:
    """Also a directory whose maker was killed before it could write a manifest."""
    return is_file(path / MANIFEST) or (bool(_ID.fullmatch(path.name)) and is_folder(path))


def named(store: Path, name: str) -> list[Path]:
    """The runs of that name, oldest first."""
    from joulewise.store.index.conditions import text_is
    from joulewise.store.index.run_entry import find_runs

    return [run.path for run in find_runs(store, text_is("name", name))] if name else []


def run_names(store: Path) -> list[str]:
    """The names and groups of the newest runs, for "did you mean"."""
    from joulewise.store.index.conditions import ALWAYS
    from joulewise.store.index.run_entry import find_runs

    newest = find_runs(store, ALWAYS)[-_SUGGESTED:]
    return list(dict.fromkeys(word for run in newest for word in (run.name, run.group) if word))


def id_second(name: str) -> int | None:
    """The second since 1970 at which a run of that id was made; None where it is no id."""
    if not _ID.fullmatch(name):
        return None
    year, month, day = int(name[:4]), int(name[4:6]), int(name[6:8])
    hour, minute, second = int(name[9:11]), int(name[11:13]), int(name[13:15])
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
    except ValueError:
        return None
    return calendar.timegm(moment.timetuple())


def _last(store: Path) -> Path | None:
    """The newest id; one that was renamed stands where its manifest says that it began.

    Of several that were made in one second, and of those that were renamed, the start is read.
    """
    ids: list[str] = []
    candidates: list[str] = []
    for name in _names(store):
        (ids if _ID.fullmatch(name) else candidates).append(name)
    newest = ""
    for name in sorted(ids, reverse=True):
        if newest and not name.startswith(newest):
            break
        candidates.append(name)
        if id_second(name) is not None and is_file(store / name / MANIFEST):
            newest = name[:15]
    found = [store / name for name in candidates if is_file(store / name / MANIFEST)]
    if len(found) < 2:
        return found[0] if found else None
    return max(found, key=lambda run: (*order_of(run, _started_ns(run)), run.name))


def order_of(run: Path, start_ns: int) -> tuple[int, int]:
    """Where a run stands among others: by the second in its id, then by its start."""
    second = id_second(run.name)
    return start_ns // NS_PER_S if second is None else second, start_ns


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


def unlistable(store: Path, error: OSError) -> UsageError:
    is_refused = error.errno in {errno.EACCES, errno.EPERM}
    do = "have its owner open it, or " if is_refused else ""
    return UsageError(f"cannot read {store}: {error.strerror}", f"{do}{ELSEWHERE}")


def _directories(store: Path) -> list[Path]:
    return [store / name for name in sorted(_names(store))]


def _names(store: Path) -> list[str]:
    """The names of the folders in a store, in no order."""
    try:
        with os.scandir(store) as entries:
            return [each.name for each in entries if each.name != SWEEPS and is_entry_folder(each)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise unlistable(store, error) from None


def _started_ns(run: Path) -> int:
    """Of one that cannot be read its name may tell."""
    told = _told(run)
    if isinstance(told, Manifest):
        return told.wall_start_ns
    return (id_second(run.name) or 0) * NS_PER_S


def _status(run: Path) -> str:
    told = _told(run)
    return status(told) if isinstance(told, Manifest) else ""


def _told(run: Path) -> Manifest | Skipped:
    found = manifest_of(run)
    return found if isinstance(found, Skipped) else found[1]


def manifest_of(run: Path) -> tuple[Path, Manifest] | Skipped:
    """A run with its manifest, or the reason why it cannot be read."""
    try:
        return run, read_manifest(run)
    except JoulewiseError as error:
        return Skipped(run, error.message)


def _some(found: list[Path]) -> str:
    names = [run.name for run in found]
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


_HEAD_KEY: Final = "head_crc32"
_HEAD_ENDING: Final = re.compile(rb', "head_crc32": "([0-9a-f]{8})",\n\Z')


def read_summary(run: Path) -> dict[str, Any] | None:
    """The stored result without spans and details, in its documented form.

    None where there is none that this version can read.
    """
    try:
        return load_summary(run)
    except OSError:
        return None


def load_summary(run: Path) -> dict[str, Any] | None:
    """The same, but that a file which is there and cannot be read is an OSError."""
    try:
        with open_regular(run / RESULT) as file:
            told = _read_head(file.readline())
        if not isinstance(told, dict) or told.get("format") != RESULT_FORMAT:
            return None
        check_types(told)
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None
    return told


def with_head_checksum(first: str) -> str:
    """The first line, from the text of its object: ``ls`` reads no more than that."""
    body = first.removesuffix("}")
    return f'{body}, "{_HEAD_KEY}": "{zlib.crc32(body.encode()):08x}",'


def _read_head(line: bytes) -> Any:
    """What the first line says; a ValueError where it is damaged."""
    ending = _HEAD_ENDING.search(line)
    if ending is None:  # of a version that wrote none
        return read_checked_json(line.rstrip(b",\n") + b"}")
    body = line[: ending.start()]
    if zlib.crc32(body) != int(ending.group(1), 16):
        raise DamagedJsonError("its first line does not match its checksum")
    return json.loads(body + b"}")

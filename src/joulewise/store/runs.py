"""The store, a folder of runs: making, listing, finding and removing them, and their states.

Also the head of result.json: its first line has the result without spans and details, with a
checksum of its own, so that whoever lists runs reads one line of each.
"""

from __future__ import annotations

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

from joulewise.data.run_result_json import RESULT_FORMAT, check_result
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
_ID: Final = re.compile(r"(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)-[0-9a-f]{4}")
RECORDING, KILLED = "recording", "killed"
COMPLETE, STOPPED_BY_BUDGET = "complete", "stopped by budget"
STATES: Final = (RECORDING, COMPLETE, STOPPED_BY_BUDGET, "stopped", KILLED)
ENDED_IN_ORDER: Final = (COMPLETE, STOPPED_BY_BUDGET)
"""The states of runs that were recorded up to the end of their command."""

SILENT_NS: Final = 90 * NS_PER_S
"""A process elsewhere counts as killed this long after its last sign of life. Chosen as three times
the 30 s after which a recorder saves ``run.json`` and a sweep renews its lock; twice as much shows
a killed run as recording for twice as long."""

_SUGGESTED: Final = 1000
"""Runs whose names are considered for "did you mean". Chosen: it takes 0.1 s at most."""
ELSEWHERE: Final = "name another with --store DIR or $JOULEWISE_STORE"
_REMEDIES: Final = {
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "make it writable, or "),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "make room there, or "),
}


def default_store(environ: Mapping[str, str] | None = None) -> Path:
    """``$JOULEWISE_STORE``, or ``joulewise-runs`` in the current directory."""
    return Path((os.environ if environ is None else environ).get("JOULEWISE_STORE") or FOLDER)


def new_run(store: Path, now_s: float | None = None, run_id: str = "") -> Path:
    """Make a run directory with a first manifest; a JoulewiseError says why that fails.

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
        raise creation_error("run", store, error) from None
    return run


def creation_error(what: str, store: Path, error: OSError) -> JoulewiseError:
    """The error for a run or sweep (``what``) that could not be made in a store."""
    remedy = _REMEDIES.get(error.errno or 0, "")
    return JoulewiseError(
        f"cannot make a {what} in {store}: {error.strerror}", f"{remedy}{ELSEWHERE}"
    )


def new_id(now_s: float | None = None) -> str:
    """Make the id of a run or sweep: the time in UTC, and four random hexadecimal digits."""
    return f"{time.strftime(_STAMP, time.gmtime(now_s))}-{secrets.token_hex(2)}"


def new_directory(store: Path, now_s: float | None = None) -> Path:
    """Make an empty directory with a unique name: the time (UTC) and 4 digits."""
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
    """Written before devices are opened, so that a kill during that leaves a run, too."""
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
    """A folder in a store that is not a readable run, and why."""

    path: Path
    reason: str


def runs(store: Path) -> Iterator[Path]:
    """The runs of a store by name; whatever else lies there is ignored."""
    for path in _directories(store):
        if is_file(path / MANIFEST):
            yield path


def readable(store: Path) -> Iterator[tuple[Path, Manifest] | Skipped]:
    """First what cannot be read, with the reason, then every run, oldest first. All are read.

    Only a store that exists and cannot be listed is an error.
    """
    readable_runs = []
    for path in _directories(store):
        entry = manifest_of(path)
        if isinstance(entry, Skipped):
            yield entry
        else:
            readable_runs.append(entry)
    yield from sorted(readable_runs, key=lambda entry: order_of(entry[0], entry[1].wall_start_ns))


@dataclass(frozen=True)
class RecorderSign:
    """Where a recorder runs and when it last wrote ``run.json``, to find out whether it lives."""

    boot_id: str
    host: str | None
    pid: int
    started_ticks: int
    saved_wall_ns: int
    pid_namespace: str


def sign_of(manifest: Manifest) -> RecorderSign | None:
    """The recorder's sign of life in a manifest; None where it names no recorder."""
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
    """The state of a run, one of ``STATES``; killed where its recorder is dead."""
    return state_of(manifest.state, sign_of(manifest))


def state_of(state: str, sign: RecorderSign | None) -> str:
    """The same, from the state in its manifest and its recorder's sign of life."""
    if state != RECORDING:
        return state
    return RECORDING if sign and _is_alive(sign) else KILLED


def _is_alive(sign: RecorderSign) -> bool:
    """On another node or in another container its process cannot be seen, only what it writes."""
    is_here = sign.boot_id == boot_id() and sign.host in {None, platform.node()}
    if is_here and sign.pid_namespace in {"", pid_namespace()}:
        return is_alive(sign.pid, sign.started_ticks)
    return time.time_ns() - sign.saved_wall_ns < SILENT_NS


@dataclass(frozen=True)
class FoundRun:
    """A run that was found by name; ``alike`` runs have that name, and this is the newest."""

    path: Path
    alike: int = 1


def find(store: Path, which: str) -> Path:
    """The run of that path, id, beginning of an id, or name, or ``last``; else a UsageError."""
    return resolve_run(store, which).path


def resolve_run(store: Path, which: str) -> FoundRun:
    """The same, with how many runs have that name.

    Ids begin with the time: for ``last`` and for the beginning of an id the names of the folders
    are enough, and no other run is read. Names are looked up in the index.
    """
    path = Path(which)
    if is_file(path / MANIFEST):
        return FoundRun(path)
    if which != LAST and path.name == which and _is_run(store / which):
        return FoundRun(store / which)
    if which == LAST:
        newest = _newest_run(store)
        if newest is not None:
            return FoundRun(newest)
    elif which:
        by_id = beginning(store, which)
        if len(by_id) > 1:
            names = ", ".join([*(run.name for run in by_id[:3]), *("…" for _ in by_id[3:4])])
            raise UsageError(f"{which!r} begins {len(by_id)} runs: {names}", "give more of the id")
        matches = by_id or named(store, which)
        if matches:  # a name may be used again: the newest run is taken
            return FoundRun(matches[-1], len(matches))
    if which == LAST or next(runs(store), None) is None:
        raise UsageError(
            f"there are no runs in {store}", f"joulewise run -- CMD… makes one; or {ELSEWHERE}"
        )
    raise UsageError(
        f"{store} has no run {which!r}",
        f"{did_you_mean(which, [LAST, *run_names(store)])}joulewise ls lists them; or {ELSEWHERE}",
    )


def beginning(store: Path, start: str) -> list[Path]:
    """The runs whose folder's name begins with ``start``, by name; no other is read."""
    names = sorted(name for name in _names(store) if name.startswith(start))
    return [store / name for name in names if is_file(store / name / MANIFEST)]


def newest_recording(store: Path) -> Path | None:
    """The newest run that is being recorded; None where there is none."""
    from joulewise.store.index.conditions import text_is
    from joulewise.store.index.run_entry import find_runs

    recording = find_runs(store, text_is("state", RECORDING))
    return recording[-1].path if recording else None


def _is_run(path: Path) -> bool:
    """Also True for a directory whose maker was killed before it wrote a manifest."""
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
    """The second since 1970 at which a run of that id was made; None where it is not an id."""
    fields = _ID.fullmatch(name)
    if fields is None:
        return None
    year, month, day, hour, minute, second = map(int, fields.groups())
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
    except ValueError:
        return None
    return int(moment.timestamp())


def _newest_run(store: Path) -> Path | None:
    """The run with the newest id; a renamed run is placed by the start in its manifest.

    The manifest is read only of renamed runs, and of several that were made in one second.
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
    newest_runs = [store / name for name in candidates if is_file(store / name / MANIFEST)]
    if len(newest_runs) < 2:
        return newest_runs[0] if newest_runs else None
    return max(newest_runs, key=lambda run: (*order_of(run, _started_ns(run)), run.name))


def order_of(run: Path, start_ns: int) -> tuple[int, int]:
    """The sorting key of a run: the second in its id, then its start (ns, wall clock)."""
    second = id_second(run.name)
    return start_ns // NS_PER_S if second is None else second, start_ns


def check_is_no_link(run: Path) -> None:
    """Raise a UsageError where a run is a link: the run itself may be linked to by others."""
    if run.is_symlink():
        raise UsageError(
            f"{run} is a link to a run elsewhere", f"remove the link yourself: rm {run}"
        )


def remove(run: Path) -> None:
    """Delete a run for good, unless it is being recorded."""
    entry = manifest_of(run)
    if not isinstance(entry, Skipped) and status(entry[1]) == RECORDING:
        raise UsageError(f"{run.name} is being recorded", "end its command first")
    check_is_no_link(run)
    try:
        shutil.rmtree(run)
    except OSError as error:
        raise JoulewiseError(
            f"cannot remove {run}: {error.strerror or error}", "see who owns it: ls -l"
        ) from None


def unlistable_store_error(store: Path, error: OSError) -> UsageError:
    """The error for a store that exists and cannot be listed."""
    is_refused = error.errno in {errno.EACCES, errno.EPERM}
    remedy = "have its owner open it, or " if is_refused else ""
    return UsageError(f"cannot read {store}: {error.strerror}", f"{remedy}{ELSEWHERE}")


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
        raise unlistable_store_error(store, error) from None


def _started_ns(run: Path) -> int:
    """The start of a run (wall clock); of one that cannot be read, the time in its name."""
    entry = manifest_of(run)
    if isinstance(entry, Skipped):
        return (id_second(run.name) or 0) * NS_PER_S
    return entry[1].wall_start_ns


def manifest_of(run: Path) -> tuple[Path, Manifest] | Skipped:
    """A run with its manifest, or the reason why it cannot be read."""
    try:
        return run, read_manifest(run)
    except JoulewiseError as error:
        return Skipped(run, error.message)


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
    """The same, except that a file that exists and cannot be read is an OSError."""
    try:
        with open_regular(run / RESULT) as file:
            summary = _read_head(file.readline())
        if not isinstance(summary, dict) or summary.get("format") != RESULT_FORMAT:
            return None
        check_result(summary)
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None
    return summary


def with_head_checksum(first: str) -> str:
    """The first line of result.json, from the text of its JSON object."""
    body = first.removesuffix("}")
    return f'{body}, "{_HEAD_KEY}": "{zlib.crc32(body.encode()):08x}",'


def _read_head(line: bytes) -> Any:
    """The object in the first line; a ValueError where it is damaged."""
    ending = _HEAD_ENDING.search(line)
    if ending is None:  # written by an older version
        return read_checked_json(line.rstrip(b",\n") + b"}")
    body = line[: ending.start()]
    if zlib.crc32(body) != int(ending.group(1), 16):
        raise DamagedJsonError("its first line does not match its checksum")
    return json.loads(body + b"}")

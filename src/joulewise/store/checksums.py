"""Checksums by which damage to a run directory is found, however small it is.

A flipped bit in a stream or in a JSON file usually leaves a readable file with another number in
it. So the JSON files end with a checksum of themselves, and ``checksums.json`` has those of all
other files: of every file at the end of a run, and about every 30 s while it is recorded, of what
had been written of the streams and marks by then. In between, ``checksums.log`` gains a line after
each write, about every second, so that what a killed run wrote is verified, too.

Of each file it has the CRC-32 of several prefixes, the longest of which is the whole file. A
damaged file is thereby known to be sound up to some point, and what was recorded before that point
still counts. CRC-32 (ISO 3309, as in zlib and Parquet) finds every change of up to 32 consecutive
bits, and all but one in 4 billion of the others. It does not protect against intent.
"""

from __future__ import annotations

import json
import math
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypedDict

from joulewise.data.codec import decode
from joulewise.errors import JoulewiseError
from joulewise.store.files import (
    MOST_PREFIXES,
    Prefix,
    add_prefix,
    entry_exists,
    open_regular,
    read_regular_bytes,
    replace_file,
)
from joulewise.store.layout import (
    CHECKSUM_LOG,
    CHECKSUMS,
    MARKS,
    MISSES,
    PACKED,
    PROCESSES,
    STREAM,
    TRACE,
    TUNING,
)

Stamp = tuple[int, int, int, int]
"""Size, inode, modification time and change time (ns) of a file.

The change time is set by the kernel: a copy that is put in place with the same size and
modification time is another one.
"""

_LEAST_B: Final = 4096  # between two prefixes: a block of a disk (chosen)
_READ_B: Final = 1 << 20  # read at a time; chosen, only memory depends on it
_KEY: Final = "crc32"
MARK_SUFFIX: Final = ".marks"
_ENDING: Final = re.compile(rb',\s*"crc32": "([0-9a-f]{8})"\s*\}\s*\Z')


class DamagedJsonError(ValueError):
    """A JSON file that is not as it was written."""


def with_checksum(text: str) -> str:
    """The text of a JSON object with its checksum as the last key."""
    body = text.rstrip().removesuffix("}").rstrip()
    return f'{body},\n"{_KEY}": "{zlib.crc32(body.encode()):08x}"}}\n'


def read_checked_json(content: bytes) -> Any:
    """Parse a JSON file; a DamagedJsonError where it is not as it was written.

    A file of an older version has no checksum: then its numbers have to be finite, at least.
    """
    ending = _ENDING.search(content[-64:])
    if ending is not None:
        body = content[: len(content) - len(ending.group())]
        if zlib.crc32(body) != int(ending.group(1), 16):
            raise DamagedJsonError("what it says does not match its checksum")
    elif f'"{_KEY}": "'.encode() in content:
        raise DamagedJsonError("what it says does not end with its checksum")
    # A damaged number may be infinite, or an integer that takes minutes to parse.
    checks: dict[str, Any] = {
        "parse_constant": _refuse,
        "parse_float": _finite_float,
        "parse_int": _short_int,
    }
    try:
        return json.loads(content, **({} if ending else checks))
    except DamagedJsonError:
        raise
    except (ValueError, RecursionError):
        raise DamagedJsonError("it is not whole JSON") from None


def read_json_of(path: Path, unreadable: Callable[[str], JoulewiseError]) -> Any:
    """The same of a file; raises the error that ``unreadable`` makes of what is wrong with it.

    Its ``__context__`` is the error of the file: the index remembers only what will not pass.
    """
    try:
        return read_checked_json(read_regular_bytes(path))
    except FileNotFoundError:
        raise unreadable(f"it has no {path.name}") from None
    except OSError as error:
        raise unreadable(f"{path.name}: {error.strerror}") from None
    except DamagedJsonError as error:
        raise unreadable(f"{path.name} is damaged: {error}") from None


def _refuse(text: str) -> None:
    raise DamagedJsonError(f"it has the number {text[:20]}")


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        _refuse(text)
    return value


def _short_int(text: str) -> int:
    """All integers that we write fit 64 bits."""
    if len(text) > len(str(-(1 << 63))):
        _refuse(text)
    return int(text)


@dataclass(frozen=True)
class Damage:
    """A file that is not as it was written.

    ``sound_b`` is how many bytes from its beginning are sound. ``has_tail``: so is its end, which
    in a Parquet file is the index.
    """

    file: str
    reason: str
    sound_b: int
    has_tail: bool = False


@dataclass(frozen=True)
class FileChecksums:
    """Checksums of one file; ``tail`` is that of the index at the end of a Parquet file.

    ``file`` is its path within the run.
    """

    file: str
    prefixes: tuple[Prefix, ...]
    tail: Prefix | None = None


@dataclass(frozen=True)
class RunChecksums:
    """The checksums of a run by the path of each file; ``is_final`` where the run had ended.

    ``damaged`` are files of checksums that exist and hold none.
    """

    files: Mapping[str, FileChecksums]
    is_final: bool
    damaged: tuple[str, ...] = ()


def write_final_checksums(run: Path, *, durable: bool = True) -> None:
    """Write the checksums of all files of a run that has ended; OSErrors are the caller's.

    Prefixes also end where the recorder noted the end of a write, so that a batch of rows before
    damage is not lost with the rest of its block.
    """
    earlier = read_checksums(run).files
    named = ((_name(run, path), path) for path in sorted(_checked_files(run)))
    files = {name: _sum_file(name, path, earlier.get(name)) for name, path in named}
    _write(run, RunChecksums(files, is_final=True), durable=durable)
    (run / CHECKSUM_LOG).unlink(missing_ok=True)


class MarkSums:
    """Checksums of the files of marks while a run is recorded; each byte is read once."""

    def __init__(self, run: Path) -> None:
        self._folder = run / MARKS
        self._prefixes: dict[Path, list[Prefix]] = {}

    def read_on(self) -> Mapping[Path, Sequence[Prefix]]:
        """Read what was written since the last call; the checksums of everything up to now."""
        with suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                path = self._folder / entry.name
                known = self._prefixes.get(path, [])
                read_b = known[-1][0] if known else 0
                if path.suffix == MARK_SUFFIX and entry.stat().st_size > read_b:
                    self._prefixes[path] = _read_on(path, known)
        return self._prefixes


def _read_on(path: Path, known: list[Prefix]) -> list[Prefix]:
    read_b, crc = known[-1] if known else (0, 0)
    with suppress(OSError), open_regular(path) as file:
        file.seek(read_b)
        while piece := file.read(_READ_B):
            crc = zlib.crc32(piece, crc)
            read_b += len(piece)
    return add_prefix(known, (read_b, crc)) if read_b else known


class RecordingChecksums:
    """Writes the checksums of a run while it is recorded; OSErrors are the caller's.

    :meth:`append` adds a line to ``checksums.log`` with the files that have grown since the last
    one, and the line's own CRC-32. :meth:`save` writes ``checksums.json`` and empties the log,
    which thereby stays below about 30 kB. A kill between the two leaves lines that repeat the file.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._marks = MarkSums(run)
        self._descriptor = -1
        self._size_b = 0
        self._logged: dict[Path, Prefix] = {}
        self._names: dict[Path, str] = {}

    def append(self, streams: Mapping[Path, Sequence[Prefix]]) -> None:
        """Log what has grown; ``streams`` are the prefixes of the recorder's own files."""
        newest = {path: prefixes[-1] for path, prefixes in self._all(streams).items()}
        grown = {path: last for path, last in newest.items() if self._logged.get(path) != last}
        if not grown:
            return
        for path in grown.keys() - self._names.keys():
            self._names[path] = _name(self._run, path)
        body = json.dumps({self._names[path]: last for path, last in grown.items()}).encode()
        line = b"%s %08x\n" % (body, zlib.crc32(body))
        if self._descriptor < 0:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC | os.O_CLOEXEC
            self._descriptor = os.open(self._run / CHECKSUM_LOG, flags, 0o666)
        if os.write(self._descriptor, line) < len(line):  # a full disk: no half lines
            os.ftruncate(self._descriptor, self._size_b)
            return
        self._size_b += len(line)
        self._logged |= grown

    def save(self, streams: Mapping[Path, Sequence[Prefix]]) -> None:
        """Write ``checksums.json``, which has all that the log has."""
        files = {
            (name := _name(self._run, path)): FileChecksums(name, tuple(prefixes))
            for path, prefixes in self._all(streams).items()
        }
        _write(self._run, RunChecksums(files, is_final=False), durable=False)
        if self._size_b:
            os.ftruncate(self._descriptor, 0)
            self._size_b = 0

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _all(self, streams: Mapping[Path, Sequence[Prefix]]) -> dict[Path, Sequence[Prefix]]:
        return {**streams, **self._marks.read_on()}


def damaged_files(run: Path) -> tuple[Damage, ...]:
    """The files of a run that are not as they were written; none where there are no checksums.

    Each is read once, and not again as long as it does not change. Without tuning.json, of which no
    energy comes: ``store.tuning_file`` judges it.
    """
    checksums = read_checksums(run)
    own = (Damage(name, "it holds no checksums", 0) for name in checksums.damaged)
    others = (find_damage(run, run / name) for name in checksums.files if name != TUNING)
    return (*own, *(damage for damage in others if damage is not None))


def find_damage(run: Path, path: Path) -> Damage | None:
    """The damage to a file; None where there is none, or it has no checksums."""
    checksums = read_checksums(run)
    name = _name(run, path)
    known = checksums.files.get(name)
    if known is None or not known.prefixes:
        return None
    if path.suffix == STREAM and entry_exists(path.with_suffix(PACKED)):
        return None  # packed after these checksums were written, and the stream is not needed
    grows = path.parent.name == MARKS or not checksums.is_final
    try:
        return _check(path, known, file_stamp(path), grows=grows)
    except FileNotFoundError:
        return Damage(name, "it is gone", 0)
    except OSError as error:
        return Damage(name, f"it cannot be read: {error.strerror}", 0)


def file_stamp(path: Path) -> Stamp:
    """What changes whenever the file does, without reading it."""
    state = path.stat()
    return state.st_size, state.st_ino, state.st_mtime_ns, state.st_ctime_ns


def is_verified(run: Path, path: Path) -> bool:
    """Whether the checksums cover the whole file, so that :func:`find_damage` finds everything."""
    checksums = read_checksums(run)
    return checksums.is_final and _name(run, path) in checksums.files


@lru_cache(maxsize=256)
def _check(path: Path, known: FileChecksums, stamp: Stamp, *, grows: bool) -> Damage | None:
    """Compare a file with its checksums; cached as long as its ``stamp`` is the same."""
    size_b, name = stamp[0], known.file
    whole_b = known.prefixes[-1][0]
    sound_b = _sound_b(path, known.prefixes)
    if sound_b == whole_b and (size_b == whole_b or (grows and size_b > whole_b)):
        return None
    if sound_b == whole_b:
        return Damage(name, f"it has {size_b - whole_b} bytes more than were recorded", sound_b)
    if size_b < whole_b:
        reason = f"it has {size_b} of {whole_b} bytes"
    elif not sound_b:
        reason = "none of it is what was recorded"
    else:
        reason = f"what comes after its first {sound_b} bytes is not what was recorded"
    return Damage(name, reason, sound_b, has_tail=size_b == whole_b and _has_tail(path, known.tail))


def _sound_b(path: Path, prefixes: Sequence[Prefix]) -> int:
    """The length of the longest prefix of a file that is as it was written."""
    sound_b = crc = read_b = 0
    with open_regular(path) as file:
        for end_b, wanted in prefixes:
            while read_b < end_b and (piece := file.read(min(_READ_B, end_b - read_b))):
                crc = zlib.crc32(piece, crc)
                read_b += len(piece)
            if read_b < end_b or crc != wanted:
                break
            sound_b = end_b
    return sound_b


def _has_tail(path: Path, tail: Prefix | None) -> bool:
    if tail is None:
        return False
    with open_regular(path) as file:
        file.seek(-tail[0], 2)
        return zlib.crc32(file.read()) == tail[1]


def _sum_file(name: str, path: Path, earlier: FileChecksums | None) -> FileChecksums:
    size_b = path.stat().st_size
    step_b = max(_LEAST_B, -(-size_b // MOST_PREFIXES))
    written_b = {end_b for end_b, _ in earlier.prefixes} if earlier else set()
    ends_b = sorted({*range(step_b, size_b, step_b), *written_b, size_b})
    prefixes, crc, read_b = [], 0, 0
    with open_regular(path) as file:
        for end_b in ends_b:
            if piece := file.read(end_b - read_b):
                crc = zlib.crc32(piece, crc)
                read_b += len(piece)
                prefixes.append((read_b, crc))
    return FileChecksums(name, tuple(prefixes), _sum_index(path) if path.suffix == PACKED else None)


def _sum_index(path: Path) -> Prefix:
    """The checksum of the index at the end of a Parquet file; its length and ``PAR1`` come last."""
    with open_regular(path) as file:
        file.seek(-8, 2)
        length_b = int.from_bytes(file.read(4), "little") + 8
        file.seek(-length_b, 2)
        return length_b, zlib.crc32(file.read())


def _checked_files(run: Path) -> Iterator[Path]:
    yield from (path for path in (run / PROCESSES, run / MISSES, run / TUNING) if path.is_file())
    for folder in (TRACE, MARKS):
        with suppress(FileNotFoundError):
            yield from (path for path in (run / folder).iterdir() if path.is_file())


def _name(run: Path, path: Path) -> str:
    return path.relative_to(run).as_posix()


def _write(run: Path, checksums: RunChecksums, *, durable: bool) -> None:
    payload = {
        "is_final": checksums.is_final,
        "files": {
            name: {"prefixes": file.prefixes, "tail": file.tail}
            for name, file in checksums.files.items()
        },
    }
    replace_file(run / CHECKSUMS, with_checksum(json.dumps(payload)), durable=durable)


def read_checksums(run: Path) -> RunChecksums:
    """The checksums of a run; without files where there are none or they are damaged."""
    checksums = RunChecksums({}, is_final=False)
    path, log = run / CHECKSUMS, run / CHECKSUM_LOG
    with suppress(OSError):
        checksums = _read_checksum_file(path, file_stamp(path))
    if checksums.is_final:
        return checksums
    with suppress(OSError):
        return _with_log(checksums, log, file_stamp(log))
    return checksums


def _with_log(checksums: RunChecksums, log: Path, stamp: Stamp) -> RunChecksums:
    """The checksums with those in the log, which are newer."""
    files = dict(checksums.files)
    every_logged, is_damaged = _read_log(log, stamp)
    damaged = (*checksums.damaged, *((CHECKSUM_LOG,) if is_damaged else ()))
    for name, logged in every_logged.items():
        known = files.get(name, FileChecksums(name, ()))
        prefixes = tuple(sorted({*known.prefixes, *logged}))
        files[name] = FileChecksums(name, prefixes, known.tail)
    return RunChecksums(files, is_final=False, damaged=damaged)


@lru_cache(maxsize=64)
def _read_log(
    log: Path,
    stamp: Stamp,  # noqa: ARG001
) -> tuple[Mapping[str, Sequence[Prefix]], bool]:
    """The prefixes in the log by file, and whether it has content and not one sound line.

    Damaged lines are ignored. The recorder may empty the log at any moment.
    """
    prefixes: dict[str, list[Prefix]] = {}
    try:
        content = read_regular_bytes(log)
    except OSError:
        return prefixes, False
    for line in content.split(b"\n"):
        body, _, crc = line.rpartition(b" ")
        if crc != b"%08x" % zlib.crc32(body):
            continue
        with suppress(ValueError):
            for name, prefix in decode(dict[str, Prefix], json.loads(body)).items():
                prefixes.setdefault(name, []).append(prefix)
    return prefixes, bool(content) and not prefixes


class _StoredFile(TypedDict):
    prefixes: tuple[Prefix, ...]
    tail: Prefix | None


class _StoredChecksums(TypedDict):
    is_final: bool
    files: dict[str, _StoredFile]


@lru_cache(maxsize=64)
def _read_checksum_file(path: Path, stamp: Stamp) -> RunChecksums:  # noqa: ARG001
    try:
        stored = decode(_StoredChecksums, read_checked_json(read_regular_bytes(path)))
    except ValueError:
        return RunChecksums({}, is_final=False, damaged=(CHECKSUMS,))
    files = {name: FileChecksums(name, **file) for name, file in stored["files"].items()}
    return RunChecksums(files, is_final=stored["is_final"])

"""Checksums by which damage to a run directory is found, however small it is.

A flipped bit in a stream or in a JSON file as a rule leaves a file that can be read, with another
number in it. So the JSON files end with a checksum of themselves, and ``checksums.json`` has those
of all other files: at the end of a run of every file, and while it is recorded, about every 30 s,
of what had been written of the streams by then.

Of each file it has the CRC-32 of several of its beginnings, the longest of which is the whole file.
A damaged file is thereby known to be sound up to some point, and what was recorded before that
point still counts. CRC-32 (ISO 3309, as in zlib and Parquet) finds every change of up to 32
consecutive bits, and of all others all but one in 4 billion. It is no protection against intent.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from joulewise.record.files import is_there, open_regular, read_regular_bytes, replace_file
from joulewise.record.layout import CHECKSUMS, MARKS, MISSES, PACKED, PROCESSES, STREAM, TRACE

Prefix = tuple[int, int]
"""How many bytes from the beginning of a file, and their CRC-32."""

Stamp = tuple[int, int, int, int]
"""Size, inode, modification time and change time (ns) of a file.

The change time is set by the kernel: a copy that is put in place with the same size and
modification time is another one.
"""

MOST_PREFIXES: Final = 64
"""Of a file. With twice as many, half as much is lost around damage, for 1.3 kB more a file."""
_LEAST_B: Final = 4096  # between two prefixes: a block of a disk (chosen)
_READ_B: Final = 1 << 20
_KEY: Final = "crc32"
_ENDING: Final = re.compile(rb',\s*"crc32": "([0-9a-f]{8})"\s*\}\s*\Z')


class DamagedJsonError(ValueError):
    """A JSON file that is not as it was written."""


# -- JSON files


def with_checksum(text: str) -> str:
    """The text of a JSON object with its checksum as the last key."""
    body = text.rstrip().removesuffix("}").rstrip()
    return f'{body},\n"{_KEY}": "{zlib.crc32(body.encode()):08x}"}}\n'


def read_checked_json(content: bytes) -> Any:
    """What a JSON file says; a DamagedJsonError where it is not as it was written.

    A file of an earlier version has no checksum: then its numbers have to be finite, at least.
    """
    ending = _ENDING.search(content[-64:])
    if ending is not None:
        body = content[: len(content) - len(ending.group())]
        if zlib.crc32(body) != int(ending.group(1), 16):
            raise DamagedJsonError("what it says does not match its checksum")
    elif f'"{_KEY}": "'.encode() in content:
        raise DamagedJsonError("what it says does not end with its checksum")
    try:
        return json.loads(content) if ending else _read_finite_json(content)
    except DamagedJsonError:
        raise
    except (ValueError, RecursionError):
        raise DamagedJsonError("it is not whole JSON") from None


def _read_finite_json(content: bytes) -> Any:
    return json.loads(
        content, parse_constant=_refuse, parse_float=_finite_float, parse_int=_short_int
    )


def _refuse(text: str) -> None:
    raise DamagedJsonError(f"it has the number {text[:20]}")


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        _refuse(text)
    return value


def _short_int(text: str) -> int:
    """All of ours fit 64 bits."""
    if len(text) > len(str(-(1 << 63))):
        _refuse(text)
    return int(text)


# -- all other files


@dataclass(frozen=True)
class Damage:
    """A file that is not as it was written.

    ``sound_b`` is how many bytes from its beginning are. ``has_tail`` says whether its end is, too.
    """

    file: str
    reason: str
    sound_b: int
    has_tail: bool = False


@dataclass(frozen=True)
class FileChecksums:
    """``file`` is its path within the run, ``tail`` of the index at the end of a Parquet file."""

    file: str
    prefixes: tuple[Prefix, ...]
    tail: Prefix | None = None


@dataclass(frozen=True)
class RunChecksums:
    """By the path of a file within the run; ``is_final`` where the run had ended."""

    files: Mapping[str, FileChecksums]
    is_final: bool


def write_final_checksums(run: Path, *, durable: bool = True) -> None:
    """Of all files of a run that has ended; an OSError is the caller's to tell of.

    Where the recorder noted how long a file was after a write, its beginnings end there, too: a
    batch of rows before the damage is then not lost with the rest of a block.
    """
    earlier = _read(run).files
    found = ((_name(run, path), path) for path in sorted(_checked_files(run)))
    files = {name: _sum_file(name, path, earlier.get(name)) for name, path in found}
    _write(run, RunChecksums(files, is_final=True), durable=durable)


class MarkSums:
    """Checksums of the files of marks while a run is recorded; each byte is read once."""

    def __init__(self, run: Path) -> None:
        self._folder = run / MARKS
        self._prefixes: dict[Path, list[Prefix]] = {}

    def read_on(self) -> Mapping[Path, Sequence[Prefix]]:
        """Read what has been written since; the checksums of all that there is by now."""
        with suppress(OSError):
            for path in self._folder.glob("*.marks"):
                self._read_on(path)
        return self._prefixes

    def _read_on(self, path: Path) -> None:
        known = self._prefixes.get(path, [])
        read_b, crc = known[-1] if known else (0, 0)
        with suppress(OSError), open_regular(path) as file:
            file.seek(read_b)
            while piece := file.read(_READ_B):
                crc = zlib.crc32(piece, crc)
                read_b += len(piece)
        if not known or read_b > known[-1][0]:
            kept = known[::2] if len(known) >= MOST_PREFIXES else known
            self._prefixes[path] = [*kept, (read_b, crc)]


def write_checksums_so_far(run: Path, prefixes: Mapping[Path, Sequence[Prefix]]) -> None:
    """Of what has been written of a run that is being recorded."""
    files = {
        (name := _name(run, path)): FileChecksums(name, tuple(each))
        for path, each in prefixes.items()
    }
    _write(run, RunChecksums(files, is_final=False), durable=False)


def damaged_files(run: Path) -> tuple[Damage, ...]:
    """The files of a run that are not as they were written; of earlier versions nothing is known.

    Each is read once, and not again as long as it stays as it is.
    """
    found = (find_damage(run, run / name) for name in _read(run).files)
    return tuple(damage for damage in found if damage is not None)


def find_damage(run: Path, path: Path) -> Damage | None:
    """What is wrong with a file; None where nothing is, or nothing is known of it."""
    checksums = _read(run)
    name = _name(run, path)
    known = checksums.files.get(name)
    if known is None or not known.prefixes:
        return None
    if path.suffix == STREAM and is_there(path.with_suffix(PACKED)):
        return None  # packed after these checksums were written, and the stream is not needed
    grows = path.parent.name == MARKS or not checksums.is_final
    try:
        return _check(path, known, file_stamp(path), grows=grows)
    except FileNotFoundError:
        return Damage(name, "it is gone", 0)
    except OSError as error:
        return Damage(name, f"it cannot be read: {error.strerror}", 0)


def file_stamp(path: Path) -> Stamp:
    state = path.stat()
    return state.st_size, state.st_ino, state.st_mtime_ns, state.st_ctime_ns


def is_verified(run: Path, path: Path) -> bool:
    """Whether the checksums are of the whole of a file: then :func:`find_damage` says all."""
    checksums = _read(run)
    return checksums.is_final and _name(run, path) in checksums.files


@lru_cache(maxsize=256)
def _check(path: Path, known: FileChecksums, stamp: Stamp, *, grows: bool) -> Damage | None:
    """The file is not read again as long as its ``stamp`` is the same."""
    size_b, name = stamp[0], known.file
    whole_b = known.prefixes[-1][0]
    sound_b = _sound_b(path, known.prefixes)
    if sound_b == whole_b and (size_b == whole_b or (grows and size_b > whole_b)):
        return None
    if sound_b == whole_b:
        return Damage(name, f"it has {size_b - whole_b} bytes more than were recorded", sound_b)
    if size_b < whole_b:
        reason = f"it has {size_b} of {whole_b} bytes"
    else:
        reason = f"what comes after its first {sound_b} bytes is not what was recorded"
    return Damage(name, reason, sound_b, has_tail=size_b == whole_b and _has_tail(path, known.tail))


def _sound_b(path: Path, prefixes: Sequence[Prefix]) -> int:
    """The longest of these beginnings of a file that is as it was written."""
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
    """Of the index at the end of a Parquet file: its length and 4 letters come last."""
    with open_regular(path) as file:
        file.seek(-8, 2)
        length_b = int.from_bytes(file.read(4), "little") + 8
        file.seek(-length_b, 2)
        return length_b, zlib.crc32(file.read())


def _checked_files(run: Path) -> Iterator[Path]:
    yield from (path for path in (run / PROCESSES, run / MISSES) if path.is_file())
    for folder in (TRACE, MARKS):
        with suppress(FileNotFoundError):
            yield from (path for path in (run / folder).iterdir() if path.is_file())


def _name(run: Path, path: Path) -> str:
    return path.relative_to(run).as_posix()


def _write(run: Path, checksums: RunChecksums, *, durable: bool) -> None:
    told = {
        "is_final": checksums.is_final,
        "files": {
            name: {"prefixes": each.prefixes, "tail": each.tail}
            for name, each in checksums.files.items()
        },
    }
    replace_file(run / CHECKSUMS, with_checksum(json.dumps(told)), durable=durable)


def _read(run: Path) -> RunChecksums:
    """Nothing where there are none, or they are damaged themselves."""
    path = run / CHECKSUMS
    try:
        return _read_as_of(path, file_stamp(path))
    except OSError:
        return RunChecksums({}, is_final=False)


@lru_cache(maxsize=64)
def _read_as_of(path: Path, stamp: Stamp) -> RunChecksums:  # noqa: ARG001
    try:
        told = read_checked_json(read_regular_bytes(path))
        files = {
            str(name): FileChecksums(
                str(name),
                tuple(map(_prefix, each["prefixes"])),
                each["tail"] and _prefix(each["tail"]),
            )
            for name, each in told["files"].items()
        }
        return RunChecksums(files, is_final=bool(told["is_final"]))
    except (DamagedJsonError, KeyError, TypeError, ValueError, AttributeError):
        return RunChecksums({}, is_final=False)


def _prefix(told: Any) -> Prefix:
    size_b, crc = told
    return int(size_b), int(crc)

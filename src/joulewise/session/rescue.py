"""Finishing a run whose recorder is gone: what it wrote is there, and the command has ended."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from joulewise.data import Caution, RunResult
from joulewise.errors import JoulewiseError
from joulewise.record.checksums import write_final_checksums
from joulewise.record.frameworks import with_frameworks
from joulewise.record.manifest import (
    CommandRecord,
    Manifest,
    read_manifest,
    with_command,
    write_last,
)


def finish_run(
    run: Path, ended: CommandRecord, last_words: str = ""
) -> tuple[RunResult | None, str]:
    """Write down how the command ended, and compute what can be; else the reason why not.

    ``last_words`` are the recorder's, where it failed and was not killed.
    """
    try:
        with _alone(run):
            manifest = _tell(run, ended, last_words)
            from joulewise.analyse.kept import write_result
            from joulewise.analyse.run import analyse

            with suppress(OSError):
                write_final_checksums(run)
            result = analyse(run, manifest)
            with suppress(OSError):  # a full disk: `show` computes it again
                write_result(run, result)
    except JoulewiseError as error:
        return None, f"the recorder is gone, and {error.message}"
    return result, ""


@contextmanager
def _alone(run: Path) -> Iterator[None]:
    """All commands of a group find the recorder gone, and some end at once."""
    folder = None
    with suppress(OSError):  # a file system that locks nothing
        folder = os.open(run, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(folder, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if folder is not None:
            os.close(folder)


def _tell(run: Path, ended: CommandRecord, last_words: str) -> Manifest:
    from joulewise.record.secrets import mask

    manifest = with_frameworks(run, read_manifest(run))
    ended = replace(ended, arguments=mask(ended.arguments))
    note = {
        "code": Caution.RECORDER_ENDED.value,
        "message": "the recorder ended before the command did: what came after it is missing",
        "hint": f"please report that it said: {last_words}"
        if last_words
        else "see who killed it (the kernel for want of memory? look into dmesg)",
    }
    commands = with_command(manifest.commands, ended)
    codes = [each.exit_code for each in commands if each.end_ns is not None]
    end_ns = max(ended.end_ns or 0, manifest.monotonic_end_ns or 0)
    others = (each for each in manifest.notes if each.get("code") != note["code"])
    manifest = replace(
        manifest,
        commands=commands,
        state="stopped",
        exit_code=next((code for code in codes if code), ended.exit_code),
        # Of the same moment: a recorder that did not answer was waited for since.
        wall_end_ns=time.time_ns() - (time.monotonic_ns() - end_ns),
        monotonic_end_ns=end_ns,
        notes=(*others, note),
    )
    with suppress(OSError):
        write_last(run, manifest)
    return manifest

"""One run of a sweep on a node of a cluster: measured there, sent back whole."""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Final

from joulewise.data.sweeps import Planned, Trial
from joulewise.sweep.asked import Asked
from joulewise.sweep.boards import Board, here
from joulewise.sweep.here import Here
from joulewise.sweep.lanes import Lane
from joulewise.sweep.store import LOGS

_LOG_B: Final = 16 * 2**20


@dataclass(frozen=True)
class Made:
    """A trial, its run's directory (empty where there is none) and its log."""

    trial: Trial
    archive: bytes
    log: bytes


def measure(told: Mapping[str, Any], planned: Planned, sweep_id: str) -> Made:
    """Called on the node, which shows the command the GPUs that it was given."""
    asked = Asked.from_json(told)
    if asked.cwd and not Path(asked.cwd).is_dir():
        asked = replace(asked, cwd="")
    with tempfile.TemporaryDirectory(prefix="joulewise-ray-") as scratch:
        store, folder = Path(scratch) / "runs", Path(scratch) / sweep_id
        runner = Here(
            asked,
            store,
            folder,
            environ=os.environ,
            lanes=[Lane()],
            say=print,
            is_warm=True,
        )
        try:
            trial = runner.run(replace(planned, lane=0))
        finally:
            runner.close()
        logs = sorted((folder / LOGS).glob("*"))
        log = _end(logs[0]) if logs else b""
        archive = packed(store / trial.run) if trial.run else b""
        return Made(replace(trial, lane=planned.lane), archive, log)


def _end(log: Path) -> bytes:
    """What is of use of a log that may be larger than memory."""
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - _LOG_B))
        return stream.read()


def boards_here() -> tuple[Board, ...]:
    """What this node has, whatever the scheduler shows to a task without GPUs."""
    hiding = {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}
    return here((), {name: value for name, value in os.environ.items() if name not in hiding})


def packed(folder: Path) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as archive:
        archive.add(folder, arcname=folder.name)
    return out.getvalue()


def unpack(archive: bytes, store: Path) -> None:
    """Into the store, under its own name only once it is whole."""
    with tempfile.TemporaryDirectory(prefix=".arriving-", dir=store) as scratch:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as files:
            _extract(files, scratch)
        for run in Path(scratch).iterdir():
            target = store / run.name
            if not target.exists():
                run.rename(target)


def _extract(files: tarfile.TarFile, folder: str) -> None:
    """Extract what a run directory has: files and folders, all of them below ``folder``."""
    if hasattr(tarfile, "data_filter"):
        files.extractall(folder, filter="data")
        return
    # Python before 3.10.12 and 3.11.4 has no filters (PEP 706); Debian 12 has 3.11.2.
    for member in files.getmembers():
        path = PurePosixPath(member.name)
        if not (member.isfile() or member.isdir()) or path.is_absolute() or ".." in path.parts:
            raise tarfile.ExtractError(f"{member.name!r} is no file of a run directory")
    files.extractall(folder)  # noqa: S202

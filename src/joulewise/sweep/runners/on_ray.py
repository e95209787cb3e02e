"""Runs on a Ray cluster: each a task that has its GPU for itself, on whichever node that is.

One run of a sweep on a node of a cluster: measured there, sent back whole.
"""

from __future__ import annotations

import io
import logging
import os
import socket
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Final

from joulewise.data.sweeps import MEM_CLOCK, POWER_LIMIT, SM_CLOCK, Planned, Trial
from joulewise.errors import JoulewiseError, UsageError
from joulewise.sweep.boards import TargetBoard, here
from joulewise.sweep.runners.child_run import GRACE_S
from joulewise.sweep.runners.local import Here
from joulewise.sweep.runners.runner import GpuSlot, Hopeless
from joulewise.sweep.spec import SweepSpec
from joulewise.sweep.stored_sweeps import LOGS
from joulewise.sweep.trial import failed, log_name

_LOG_B: Final = 16 * 2**20


@dataclass(frozen=True)
class Made:
    """A trial, its run's directory (empty where there is none) and its log."""

    trial: Trial
    archive: bytes
    log: bytes


def measure(told: Mapping[str, Any], planned: Planned, sweep_id: str) -> Made:
    """Called on the node, which shows the command the GPUs that it was given."""
    asked = SweepSpec.from_json(told)
    if asked.cwd and not Path(asked.cwd).is_dir():
        asked = replace(asked, cwd="")
    with tempfile.TemporaryDirectory(prefix="joulewise-ray-") as scratch:
        store, folder = Path(scratch) / "runs", Path(scratch) / sweep_id
        runner = Here(
            asked,
            store,
            folder,
            environ=os.environ,
            lanes=[GpuSlot()],
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


def boards_here() -> tuple[TargetBoard, ...]:
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


_LOOK_S: Final = 0.5
_DOOR_S: Final = 5.0
_PATIENCE_S: Final = 2 * GRACE_S
_LOST: Final = 20
"""So often a run is begun again that was lost with its node."""

_INSTALL: Final = "pip install 'joulewise[ray]'"


class OnRay:
    """See :class:`joulewise.sweep.runners.runner.Runner`; a lane is a GPU of the cluster."""

    def __init__(
        self,
        asked: SweepSpec,
        store: Path,
        folder: Path,
        *,
        cluster: Cluster,
        say: Callable[[str], None],
    ) -> None:
        self._asked = asked
        self._store = store
        self._folder = folder
        self._cluster = cluster
        self._say = say
        self._here = Here(asked, store, folder, environ={}, lanes=[GpuSlot()], say=say)
        self._stopped = threading.Event()

    @property
    def lanes(self) -> int:
        return len(self._cluster.homes)

    def adopt(self, planned: Planned) -> Trial | None:
        return self._here.adopt(planned)

    def run(self, planned: Planned, hopeless: Hopeless | None = None) -> Trial:  # noqa: ARG002
        """A run that is lost with its node is made again on another."""
        for _ in range(_LOST):
            made = self._attempt(planned)
            if isinstance(made, Made):
                try:
                    return self._kept(planned, made)
                except OSError as error:  # no room in the store
                    return failed(planned, f"its run cannot be stored: {error}")
            if self._stopped.is_set() or not isinstance(made, self._cluster.lost):
                return failed(planned, _first_line(made))
            self._say(f"a node was lost ({type(made).__name__}): its run is made again")
            time.sleep(_LOOK_S)
        return failed(planned, "its nodes were lost again and again")

    def stop(self) -> None:
        self._stopped.set()

    def close(self) -> None:
        self._cluster.leave()

    def _attempt(self, planned: Planned) -> Made | Exception:
        """What the task made, or what it raised, wherever that was."""
        task = self._cluster.submit(
            planned.lane, measure, self._asked.as_json(), planned, self._folder.name
        )
        again_s = 0.0
        while not self._cluster.is_ready(task, _LOOK_S):
            # Interrupted once more while it puts its knobs back, it would leave that to others.
            if self._stopped.is_set() and time.monotonic() >= again_s:
                self._cluster.cancel(task)
                again_s = time.monotonic() + _PATIENCE_S
        try:
            made: Made = self._cluster.get(task)
        except Exception as error:  # noqa: BLE001  # Ray raises again what was raised there
            return error
        return made

    def _kept(self, planned: Planned, made: Made) -> Trial:
        if made.log:
            log = self._folder / LOGS / log_name(planned)
            log.parent.mkdir(exist_ok=True)
            with log.open("ab") as earlier:
                earlier.write(made.log)
        if made.archive:
            unpack(made.archive, self._store)
        return made.trial


class Cluster:
    """The few things that are asked of Ray. ``homes`` are the nodes of its GPUs, one for each."""

    def __init__(self, asked: SweepSpec) -> None:
        try:
            import ray
        except ImportError:
            raise JoulewiseError("ray is not installed", _INSTALL) from None
        self._ray: Any = ray
        errors = ray.exceptions
        self.lost = (
            errors.WorkerCrashedError,
            errors.NodeDiedError,
            errors.ObjectLostError,
            errors.OwnerDiedError,
            errors.LocalRayletDiedError,
            errors.TaskUnschedulableError,
        )
        self._enter(asked.on)
        alive = {
            node["NodeID"]: int(node["Resources"].get("GPU", 0))
            for node in self._ray.nodes()
            if node["Alive"]
        }
        # Where there are GPUs, Ray shows a task that asks for none of them none at all.
        self._gpus = 1 if any(alive.values()) else 0
        self.homes = [node for node, gpus in alive.items() for _ in range(gpus)]
        if not self._gpus and {POWER_LIMIT, SM_CLOCK, MEM_CLOCK}.isdisjoint(asked.axes):
            self.homes = list(alive)
        if not self.homes:
            self.leave()
            raise UsageError(
                f"the cluster has {len(alive)} nodes, and no GPU", "see what `ray status` says"
            )

    def boards(self) -> tuple[TargetBoard, ...]:
        """The boards of all nodes, each node's in its place."""
        nodes = list(dict.fromkeys(self.homes))
        tasks = [self._remote(boards_here, node, gpus=0).remote() for node in nodes]
        try:
            found = self._ray.get(tasks)
        except Exception as error:  # noqa: BLE001  # whatever a node has raised
            self.leave()
            raise JoulewiseError(
                f"a node of the cluster cannot tell its GPUs: {_first_line(error)}",
                "install the same joulewise on every node",
            ) from None
        return tuple(board for boards in found for board in boards)

    def submit(self, lane: int, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._remote(function, self.homes[lane], gpus=self._gpus).remote(*arguments)

    def is_ready(self, task: Any, wait_s: float) -> bool:
        ready, _ = self._ray.wait([task], timeout=wait_s)
        return bool(ready)

    def get(self, task: Any) -> Any:
        return self._ray.get(task)

    def cancel(self, task: Any) -> None:
        """Its task is interrupted, and puts its knobs back."""
        self._ray.cancel(task)

    def leave(self) -> None:
        self._ray.shutdown()

    def _remote(self, function: Callable[..., Any], node: str, *, gpus: int) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        # Runs of a block are compared: they stay on their node while it lives.
        home = NodeAffinitySchedulingStrategy(node, soft=True)
        # A worker that has turned knobs is not used again: what it leaves ends with it.
        options = {"num_cpus": 1, "num_gpus": gpus, "max_retries": 0, "max_calls": 1}
        return self._ray.remote(scheduling_strategy=home, **options)(function)

    def _enter(self, where: str) -> None:
        address = os.environ.get("RAY_ADDRESS") or "auto" if where == "ray" else where
        try:
            _knock(address)
            self._ray.init(
                address,
                log_to_driver=False,
                logging_level=logging.ERROR,
                configure_logging=False,
                ignore_reinit_error=True,
            )
        except Exception as error:  # noqa: BLE001  # of a dozen kinds
            raise JoulewiseError(
                f"no Ray cluster at {where}: {_first_line(error)}",
                "start one (`ray start --head`), or name its head: --on ray://HEAD:10001",
            ) from None


def _knock(address: str) -> None:
    """Whether anybody is there: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        with socket.create_connection((host, int(port)), _DOOR_S):
            pass


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]

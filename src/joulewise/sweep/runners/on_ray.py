"""Runs on a Ray cluster: each is a task with a GPU of its own, measured there and sent back."""

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
from joulewise.sweep.boards import TargetBoard, find_boards
from joulewise.sweep.runners.local import GRACE_S, LocalRunner
from joulewise.sweep.runners.runner import GpuSlot, IsHopeless
from joulewise.sweep.spec import SweepSpec
from joulewise.sweep.stored_sweeps import LOGS
from joulewise.sweep.trial import failed, log_name

_LOG_B: Final = 16 * 2**20
_POLL_S: Final = 0.5
_CONNECT_TIMEOUT_S: Final = 5.0
_CANCEL_AGAIN_S: Final = 2 * GRACE_S
# How often a run is begun again that was lost with its node. Chosen: nodes that can be taken away
# at any time come and go all day; twice as many only delays the report of a cluster that is gone.
_MOST_ATTEMPTS: Final = 20


@dataclass(frozen=True)
class TaskResult:
    """What a task sends back: a trial, its run's directory (empty where none), and its log."""

    trial: Trial
    archive: bytes
    log: bytes


def measure(spec_json: Mapping[str, Any], planned: Planned, sweep_id: str) -> TaskResult:
    """Make one run. Called on a node, where Ray shows the command the GPUs of its task."""
    spec = SweepSpec.from_json(spec_json)
    if spec.cwd and not Path(spec.cwd).is_dir():
        spec = replace(spec, cwd="")
    with tempfile.TemporaryDirectory(prefix="joulewise-ray-") as scratch:
        store, folder = Path(scratch) / "runs", Path(scratch) / sweep_id
        slots = [GpuSlot()]
        runner = LocalRunner(
            spec, store, folder, environ=os.environ, slots=slots, say=print, is_warm=True
        )
        try:
            trial = runner.run(replace(planned, lane=0))
        finally:
            runner.close()
        logs = sorted((folder / LOGS).glob("*"))
        log = _read_end(logs[0]) if logs else b""
        archive = pack(store / trial.run) if trial.run else b""
        return TaskResult(replace(trial, lane=planned.lane), archive, log)


def _read_end(log: Path) -> bytes:
    """The last part of a log, which may be larger than memory."""
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - _LOG_B))
        return stream.read()


def find_node_boards() -> tuple[TargetBoard, ...]:
    """All boards of this node: the scheduler hides them from a task without GPUs."""
    hiding = {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}
    return find_boards(
        (), {name: value for name, value in os.environ.items() if name not in hiding}
    )


def pack(folder: Path) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as archive:
        archive.add(folder, arcname=folder.name)
    return out.getvalue()


def unpack(archive: bytes, store: Path) -> None:
    """Extract a run into the store; it gets its name only once it is complete."""
    with tempfile.TemporaryDirectory(prefix=".arriving-", dir=store) as scratch:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as files:
            _extract(files, scratch)
        for run in Path(scratch).iterdir():
            target = store / run.name
            if not target.exists():
                run.rename(target)


def _extract(files: tarfile.TarFile, folder: str) -> None:
    """Extract the files and folders of a run directory; nothing outside of ``folder``."""
    if hasattr(tarfile, "data_filter"):
        files.extractall(folder, filter="data")
        return
    # Python before 3.10.12 and 3.11.4 has no filters (PEP 706); Debian 12 has 3.11.2.
    for member in files.getmembers():
        path = PurePosixPath(member.name)
        if not (member.isfile() or member.isdir()) or path.is_absolute() or ".." in path.parts:
            raise tarfile.ExtractError(f"{member.name!r} is not a file of a run directory")
    files.extractall(folder)  # noqa: S202


class RayRunner:
    """A :class:`~joulewise.sweep.runners.runner.Runner` on a cluster; a slot is one of its GPUs."""

    def __init__(
        self,
        spec: SweepSpec,
        store: Path,
        folder: Path,
        *,
        cluster: Cluster,
        say: Callable[[str], None],
    ) -> None:
        self._spec = spec
        self._store = store
        self._folder = folder
        self._cluster = cluster
        self._say = say
        self._local = LocalRunner(spec, store, folder, environ={}, slots=[GpuSlot()], say=say)
        self._stopped = threading.Event()

    @property
    def slots(self) -> int:
        return len(self._cluster.homes)

    def adopt(self, planned: Planned) -> Trial | None:
        return self._local.adopt(planned)

    def run(self, planned: Planned, is_hopeless: IsHopeless | None = None) -> Trial:  # noqa: ARG002
        """Make one run; one that is lost with its node is made again on another."""
        for _ in range(_MOST_ATTEMPTS):
            outcome = self._attempt(planned)
            if isinstance(outcome, TaskResult):
                try:
                    return self._store_result(planned, outcome)
                except OSError as error:  # no space in the store
                    return failed(planned, f"its run cannot be stored: {error}")
            if self._stopped.is_set() or not isinstance(outcome, self._cluster.lost):
                return failed(planned, _first_line(outcome))
            self._say(f"a node was lost ({type(outcome).__name__}): its run is made again")
            time.sleep(_POLL_S)
        return failed(planned, f"its node was lost {_MOST_ATTEMPTS} times")

    def stop(self) -> None:
        self._stopped.set()

    def close(self) -> None:
        self._cluster.leave()

    def _attempt(self, planned: Planned) -> TaskResult | Exception:
        """Return what the task returned or raised, or what Ray raised for it."""
        task = self._cluster.submit(
            planned.lane, measure, self._spec.as_json(), planned, self._folder.name
        )
        again_s = 0.0
        while not self._cluster.is_ready(task, _POLL_S):
            # A second interrupt too soon would end the task before it has restored its controls.
            if self._stopped.is_set() and time.monotonic() >= again_s:
                self._cluster.cancel(task)
                again_s = time.monotonic() + _CANCEL_AGAIN_S
        try:
            result: TaskResult = self._cluster.get(task)
        except Exception as error:  # noqa: BLE001  # Ray raises again what was raised there
            return error
        return result

    def _store_result(self, planned: Planned, result: TaskResult) -> Trial:
        if result.log:
            log = self._folder / LOGS / log_name(planned)
            log.parent.mkdir(exist_ok=True)
            with log.open("ab") as earlier:
                earlier.write(result.log)
        if result.archive:
            unpack(result.archive, self._store)
        return result.trial


class Cluster:
    """A Ray cluster. ``homes`` has the node of each GPU, or all nodes where none needs a GPU."""

    def __init__(self, spec: SweepSpec) -> None:
        try:
            import ray
        except ImportError:
            raise JoulewiseError("ray is not installed", "pip install 'joulewise[ray]'") from None
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
        self._enter(spec.on)
        alive = {
            node["NodeID"]: int(node["Resources"].get("GPU", 0))
            for node in self._ray.nodes()
            if node["Alive"]
        }
        # Where there are GPUs, Ray hides all of them from a task that asks for none.
        self._gpus = 1 if any(alive.values()) else 0
        self.homes = [node for node, gpus in alive.items() for _ in range(gpus)]
        if not self._gpus and {POWER_LIMIT, SM_CLOCK, MEM_CLOCK}.isdisjoint(spec.axes):
            self.homes = list(alive)
        if not self.homes:
            self.leave()
            raise UsageError(f"the cluster has {len(alive)} nodes and no GPU", "run `ray status`")

    def boards(self) -> tuple[TargetBoard, ...]:
        """The boards of all nodes, in the order of the nodes."""
        nodes = list(dict.fromkeys(self.homes))
        tasks = [self._remote(find_node_boards, node, gpus=0).remote() for node in nodes]
        try:
            boards_by_node = self._ray.get(tasks)
        except Exception as error:  # noqa: BLE001  # whatever a node has raised
            self.leave()
            raise JoulewiseError(
                f"cannot list the GPUs of a node of the cluster: {_first_line(error)}",
                "install the same joulewise on every node",
            ) from None
        return tuple(board for boards in boards_by_node for board in boards)

    def submit(self, lane: int, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._remote(function, self.homes[lane], gpus=self._gpus).remote(*arguments)

    def is_ready(self, task: Any, wait_s: float) -> bool:
        ready, _ = self._ray.wait([task], timeout=wait_s)
        return bool(ready)

    def get(self, task: Any) -> Any:
        return self._ray.get(task)

    def cancel(self, task: Any) -> None:
        """Interrupt a task, which then restores its controls."""
        self._ray.cancel(task)

    def leave(self) -> None:
        self._ray.shutdown()

    def _remote(self, function: Callable[..., Any], node: str, *, gpus: int) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        # Runs of a block are compared: they stay on their node while it lives.
        home = NodeAffinitySchedulingStrategy(node, soft=True)
        # A worker that has set controls is not used again: whatever it leaves ends with it.
        options = {"num_cpus": 1, "num_gpus": gpus, "max_retries": 0, "max_calls": 1}
        return self._ray.remote(scheduling_strategy=home, **options)(function)

    def _enter(self, where: str) -> None:
        address = os.environ.get("RAY_ADDRESS") or "auto" if where == "ray" else where
        try:
            _check_reachable(address)
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


def _check_reachable(address: str) -> None:
    """Raise an OSError where nothing listens there: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        with socket.create_connection((host, int(port)), _CONNECT_TIMEOUT_S):
            pass


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]

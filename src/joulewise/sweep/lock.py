"""Exclusion and interruption of sweeps.

- :func:`running`, :func:`is_running`: one process at a time runs a sweep
- :func:`reserve_gpus`: one sweep at a time has a GPU
- :func:`queue_signals`, :func:`raise_on_signals`: signals that end a sweep before its last run
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from joulewise.data.sweeps import Sweep, TrialState
from joulewise.errors import HeldError, JoulewiseError
from joulewise.process.linux import boot_id, is_alive, pid_namespace, started_ticks
from joulewise.process.state_dir import make_state_folder, state_folder
from joulewise.store.files import open_regular, read_regular
from joulewise.store.runs import SILENT_NS

if TYPE_CHECKING:
    from joulewise.sweep.boards import TargetBoard

LOCK: Final = "lock"
_GPUS: Final = "gpus"
_HOME: Final = ("host", "boot_id", "pid_namespace")
_HEARTBEAT_S: Final = 30.0  # as often as a recorder saves run.json: SILENT_NS is three of them


@contextmanager
def running(folder: Path) -> Iterator[bool]:
    """Hold the lock of a sweep; yields whether the sweep was ever run before.

    The lock (flock) ends with the process, however that ends; the file stays, and is empty after
    an orderly end. While the sweep runs, a heartbeat renews the file's modification time, which is
    all that another machine can see of this process.

    Raises:
        HeldError: another process runs the sweep; the message says which.
    """
    path = folder / LOCK
    has_run = path.exists()
    refusal = f"sweep {folder.name} is being run", "; --new starts another sweep"
    try:
        descriptor = _lock(path, *refusal)
    except OSError as error:
        raise JoulewiseError(
            f"cannot run the sweep in {folder}: {error.strerror}", "check its owner: ls -l"
        ) from None
    try:
        with _heartbeat(descriptor):
            yield has_run
    finally:
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
        os.close(descriptor)


@contextmanager
def _heartbeat(descriptor: int) -> Iterator[None]:
    """Renew the file's modification time every ``_HEARTBEAT_S``, in a thread of its own."""
    is_over = threading.Event()

    def beat() -> None:
        while not is_over.wait(_HEARTBEAT_S):
            with suppress(OSError):
                os.utime(descriptor)  # no times given: write permission is enough for it

    thread = threading.Thread(target=beat, name="sweep heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def is_running(folder: Path) -> bool:
    """Whether the process that signed the lock of a sweep still runs it.

    The lock itself is not tried: holding it for a moment would refuse it to a process that starts
    just then. The process of another machine or container cannot be seen: it counts as alive until
    its heartbeat is ``SILENT_NS`` old, as the recorder of a run does.
    """
    try:
        with open_regular(folder / LOCK) as file:
            # Opened first: a network file system then reports the server's time.
            changed_ns = os.fstat(file.fileno()).st_mtime_ns
            signed = json.load(file)
        home = tuple(signed[name] for name in _HOME)
        pid, ticks = int(signed["pid"]), int(signed["started_ticks"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    host, boot, namespace = _home()
    if home[0] == host and home[1] != boot:
        return False  # nothing outlives a boot
    if home == (host, boot, namespace):
        return is_alive(pid, ticks)
    return time.time_ns() - changed_ns < SILENT_NS


@contextmanager
def reserve_gpus(gpus: Iterable[TargetBoard]) -> Iterator[None]:
    """Reserve GPUs for the sweeps of this process, also between two runs.

    Where the lock files cannot be written nothing is reserved: then only leases keep runs apart.

    Raises:
        HeldError: another sweep has one of them; the message says which.
    """
    with ExitStack() as stack:
        for gpu in gpus:
            with suppress(OSError):
                folder = make_state_folder(make_state_folder(state_folder(os.environ)) / _GPUS)
                refusal = f"{gpu.key} is used by a sweep that is run", "; --gpu names other GPUs"
                descriptor = _lock(folder / quote(gpu.uid, safe=""), *refusal)
                stack.callback(os.close, descriptor)
        yield


def _lock(path: Path, refusal: str, alternative: str) -> int:
    """Lock and sign a file; return its descriptor, which holds the lock until it is closed."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        message = f"{refusal}{_describe_holder(path)}"
        raise HeldError(message, f"wait until it ends, or end it{alternative}") from None
    except OSError:
        pass  # a file system without locks
    _sign(descriptor)
    return descriptor


def _sign(descriptor: int) -> None:
    pid = os.getpid()
    signed = {
        "pid": pid,
        "started_ticks": started_ticks(pid),
        "since_wall_s": round(time.time()),
        **dict(zip(_HOME, _home(), strict=True)),
    }
    with suppress(OSError):  # on a full disk the holder stays anonymous
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(signed).encode(), 0)


def _home() -> tuple[str, str, str]:
    """The scope in which process ids are unique: host, boot and PID namespace."""
    return platform.node(), boot_id(), pid_namespace()


def _describe_holder(path: Path) -> str:
    """The process that signed a lock, in words; empty while it is being written."""
    try:
        signed = json.loads(read_regular(path))
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(signed["since_wall_s"]))
        return f" by process {signed['pid']} on {signed['host']} since {since}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


_ENDING_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class CutOffError(JoulewiseError):
    """A signal has ended the sweep; finished runs are stored. The exit status names the signal."""

    def __init__(self, number: signal.Signals, sweep: Sweep) -> None:
        done = sum(trial.state is TrialState.DONE for trial in sweep.trials)
        runs = f"its {done} finished runs are kept" if done > 1 else "its finished run is kept"
        super().__init__(
            f"sweep {sweep.id} was interrupted by {number.name}; "
            f"{runs if done else 'no run was finished'}",
            "repeat the command to make the remaining runs",
        )
        self.signal = number
        self.exit_status = 128 + number


class SignalInterrupt(KeyboardInterrupt):
    """A signal came while no run was being made; ``sweep`` is the one that was run last."""

    def __init__(self, number: signal.Signals, sweep: Sweep | None = None) -> None:
        super().__init__(number.name)
        self.signal = number
        self.sweep = sweep


class BetweenRunsError(JoulewiseError):
    """A :class:`SignalInterrupt` as an error for the user: what is stored, and how to continue."""

    def __init__(self, number: signal.Signals, what: str, hint: str) -> None:
        super().__init__(f"interrupted by {number.name}; {what}", hint)
        self.exit_status = 128 + number


@contextmanager
def raise_on_signals() -> Iterator[None]:
    """Have each signal that ends a sweep raise a :class:`SignalInterrupt`, unless ignored."""

    def interrupt(number: int, _: FrameType | None) -> None:
        raise SignalInterrupt(signal.Signals(number))

    with _handled(interrupt):
        yield


@contextmanager
def queue_signals(put: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Have each signal call ``put`` and do nothing else; those that are ignored stay so."""
    with _handled(lambda number, _: put(signal.Signals(number))):
        yield


@contextmanager
def _handled(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # Python handles signals in the main thread only
        return
    before = {
        number: signal.signal(number, handle)
        for number in _ENDING_SIGNALS
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)

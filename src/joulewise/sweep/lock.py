"""One process at a time runs a sweep, and one sweep at a time has a GPU.

Signals that end a sweep before its last run.
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
from typing import Final
from urllib.parse import quote

from joulewise.data.sweeps import Sweep, TrialState
from joulewise.errors import HeldError, JoulewiseError
from joulewise.process.linux import boot_id, is_alive, pid_namespace, started_ticks
from joulewise.process.state_dir import made, state_folder
from joulewise.store.files import open_regular, read_regular
from joulewise.store.runs import SILENT_NS
from joulewise.sweep.boards import TargetBoard

LOCK: Final = "lock"
_GPUS: Final = "gpus"
_HOME: Final = ("host", "boot_id", "pid_namespace")
_HEARTBEAT_S: Final = 30.0  # as often as a recorder saves run.json: SILENT_NS is three of them


@contextmanager
def running(folder: Path) -> Iterator[bool]:
    """Have the sweep for oneself, or an error that says who has it. Whether it ever ran before.

    The lock goes with the process, however that ends; the file stays, and is empty where it was
    given up. While the sweep runs, the time of the file's last change is renewed, which is all
    that another machine can see of this process.
    """
    path = folder / LOCK
    has_run = path.exists()
    refusal = f"sweep {folder.name} is being run", "; --new starts another sweep"
    try:
        descriptor = _locked(path, *refusal)
    except OSError as error:
        raise JoulewiseError(
            f"cannot run the sweep in {folder}: {error.strerror}", "see who owns it: ls -l"
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
    """Renew the time of the file's last change every ``_HEARTBEAT_S``, in a thread of its own."""
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
    """Whether the process that signed the lock of a sweep still has it.

    The lock itself is not tried: to have it for a moment would refuse it to who starts just then.
    The process of another machine or container cannot be seen: it counts as alive until its
    heartbeat is ``SILENT_NS`` old, as the recorder of a run does.
    """
    try:
        with open_regular(folder / LOCK) as file:
            # Opened first: a network file system then tells the time that the server has.
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
def having(gpus: Iterable[TargetBoard]) -> Iterator[None]:
    """Have GPUs for one's sweeps, also between two runs; an error that says who has one.

    Where nothing can be written they are had by nobody: then only leases keep runs apart.
    """
    with ExitStack() as stack:
        for gpu in gpus:
            with suppress(OSError):
                folder = made(made(state_folder(os.environ)) / _GPUS)
                refusal = f"{gpu.key} is used by a sweep that is run", "; --gpu names other GPUs"
                descriptor = _locked(folder / quote(gpu.uid, safe=""), *refusal)
                stack.callback(os.close, descriptor)
        yield


def _locked(path: Path, held: str, instead: str) -> int:
    """The file, locked and signed until it is closed; an OSError where it cannot be opened."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    if not _is_ours(descriptor):
        os.close(descriptor)
        raise HeldError(f"{held}{_by_whom(path)}", f"wait until it ends, or end it{instead}")
    _sign(descriptor)
    return descriptor


def _is_ours(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks
    return True


def _sign(descriptor: int) -> None:
    pid = os.getpid()
    signed = {
        "pid": pid,
        "started_ticks": started_ticks(pid),
        "since_wall_s": round(time.time()),
        **dict(zip(_HOME, _home(), strict=True)),
    }
    with suppress(OSError):  # on a full disk nobody learns who it is
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(signed).encode(), 0)


def _home() -> tuple[str, str, str]:
    """Where process ids mean what they mean to us."""
    return platform.node(), boot_id(), pid_namespace()


def _by_whom(path: Path) -> str:
    """In words; nothing where it is being written just now."""
    try:
        told = json.loads(read_regular(path))
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(told["since_wall_s"]))
        return f" by process {told['pid']} on {told['host']} since {since}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class CutOffError(JoulewiseError):
    """A signal has ended the sweep; what is done is kept, and the status is as of that signal."""

    def __init__(self, number: signal.Signals, sweep: Sweep) -> None:
        done = sum(trial.state is TrialState.DONE for trial in sweep.trials)
        kept = f"its {done} finished runs are kept" if done > 1 else "its finished run is kept"
        super().__init__(
            f"sweep {sweep.id} was ended by {number.name}; "
            f"{kept if done else 'no run was finished'}",
            "the same command goes on with the others",
        )
        self.signal = number
        self.exit_status = 128 + number


class SignalInterrupt(KeyboardInterrupt):
    """A signal has come while no run was being made; ``sweep`` is the one that was made last."""

    def __init__(self, number: signal.Signals, sweep: Sweep | None = None) -> None:
        super().__init__(number.name)
        self.signal = number
        self.sweep = sweep


class BetweenRunsError(JoulewiseError):
    """The same for whoever reads it: what is kept, and how to go on; the status is as of it."""

    def __init__(self, number: signal.Signals, what: str, hint: str) -> None:
        super().__init__(f"ended by {number.name}; {what}", hint)
        self.exit_status = 128 + number


@contextmanager
def raised_signals() -> Iterator[None]:
    """Each raises a :class:`SignalInterrupt` meanwhile, but for those that are ignored."""

    def interrupt(number: int, _: FrameType | None) -> None:
        raise SignalInterrupt(signal.Signals(number))

    with _handled(interrupt):
        yield


@contextmanager
def told_of_signals(tell: Callable[[signal.Signals], None]) -> Iterator[None]:
    """They end nothing meanwhile; those that are ignored stay so."""
    with _handled(lambda number, _: tell(signal.Signals(number))):
        yield


@contextmanager
def _handled(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # they come to another thread
        return
    before = {
        number: signal.signal(number, handle)
        for number in _ENDING
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)

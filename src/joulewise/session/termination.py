"""Finds the processes of a command that still run, and ends them."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from joulewise.process import linux

if TYPE_CHECKING:
    import psutil

COMMAND: Final = "JOULEWISE_COMMAND"
"""Variable in the environment of a command; its value identifies the command's processes."""

COMMAND_ID: Final = "JOULEWISE_COMMAND_ID"
"""Variable by which the caller of ``joulewise run`` chooses that value, to end them itself."""

RUN_ID: Final = "JOULEWISE_RUN_ID"
"""Where whoever starts ``joulewise run`` chooses the id of its run, to follow the run on disk."""

SETTLE_S: Final = 0.5
"""How long a process may outlive its command before it counts as left running.

Chosen: the workers of a pool notice a moment later that their parent has ended. Doubled, a command
that leaves processes behind ends 0.5 s later.
"""

_LOOK_S: Final = 0.05
_KILLED_S: Final = 3.0
_MOST_NAMED: Final = 3
# So long a program may be about to start, on a busy machine; chosen: twice as long, whoever ends
# next to a new program with an empty environment waits twice as long.
_STARTING_S: Final = 0.5
_STARTING_LOOKS: Final = 20
_START_FIELD: Final = 19  # in /proc/PID/stat behind the name (proc(5): field 22), in clock ticks


class CommandTermination:
    """Ends the processes of a command and those they start meanwhile; each gets SIGTERM once.

    ``pid`` is the command's own while it lives: it may have overwritten its environment.
    """

    def __init__(self, token: str, pid: int = 0) -> None:
        import psutil

        self._token = token
        self._asked: set[psutil.Process] = set()
        self._own: psutil.Process | None = None
        with suppress(psutil.Error):
            self._own = psutil.Process(pid) if pid else None

    def ask(self) -> bool:
        """Send SIGTERM to all that have not got it; whether any process is left."""
        import psutil

        # The command first, before the others are looked for, and parents before their children: a
        # shell whose child is gone goes on with its next line, or ends as if nothing stopped it.
        if self._own is not None and self._own not in self._asked:
            self._asked.add(self._own)
            with suppress(psutil.Error):  # psutil checks that it is still the same process
                _terminate(self._own)
        left = processes(self._token, self._own)
        for process in sorted(left - self._asked, key=_started):
            with suppress(psutil.Error):
                _terminate(process)
        self._asked |= left
        return bool(left)

    def kill(self) -> list[str]:
        """Kill all processes that are left; their names and ids."""
        import psutil

        names: dict[psutil.Process, str] = {}
        deadline_s = time.monotonic() + _KILLED_S  # one in a driver's call may not die at all
        while (left := processes(self._token, self._own)) and time.monotonic() < deadline_s:
            for process in left:
                names.setdefault(process, _name(process))
                with suppress(psutil.Error):
                    process.kill()
            _pause()
        return [names[process] for process in _in_order(names)]

    def end(self, grace_s: float, hurry: Callable[[], bool] = lambda: False) -> list[str]:
        """Wait up to ``grace_s`` for them to end, or until ``hurry`` is True; kill the rest."""
        deadline_s = time.monotonic() + grace_s
        while self.ask() and time.monotonic() < deadline_s and not hurry():
            _pause()
        return self.kill()


def _terminate(process: psutil.Process) -> None:
    """Ask it to end. One that is stopped would not hear of it before it is resumed."""
    import psutil

    process.terminate()
    if process.status() == psutil.STATUS_STOPPED:
        process.resume()


def left_running(token: str, settle_s: float) -> list[str]:
    """Names of the processes that outlive the command by more than ``settle_s``."""
    deadline_s = time.monotonic() + settle_s
    while (left := processes(token)) and time.monotonic() < deadline_s:
        _pause()
    return [_name(process) for process in _in_order(left)]


def describe_left(names: Sequence[str]) -> str:
    """The note on processes that the command left running."""
    count = "a process" if len(names) == 1 else f"{len(names)} processes"
    goes = "still runs and is" if len(names) == 1 else "still run and are"
    return f"{count} of the command {goes} not counted: {list_names(names)}"


def processes(token: str, own: psutil.Process | None = None) -> set[psutil.Process]:
    """The command's living processes and all their children, whatever environment these have."""
    pids = set(_with(token)) - {os.getpid()}
    if not pids and own is None:
        return set()  # as a rule; importing psutil takes longer than all of this
    import psutil

    found: set[psutil.Process] = set()
    for pid in pids:
        with suppress(psutil.Error):
            found.add(psutil.Process(pid))
    if own and own.is_running():
        found.add(own)
    for process in tuple(found):
        with suppress(psutil.Error):
            found |= set(process.children(recursive=True))
    return {process for process in found if _lives(process)}


def list_names(names: Collection[str]) -> str:
    """``python (17), sh (18), sleep (19) and 2 more``."""
    more = len(names) - _MOST_NAMED
    return ", ".join(list(names)[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _with(token: str) -> Iterator[int]:
    if not linux.IS_LINUX:
        import psutil

        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if process.environ().get(COMMAND) == token:
                    yield process.pid
        return
    entry = f"{COMMAND}={token}".encode()
    for pid in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208  # a tenth of the time
        with suppress(OSError):
            if entry in _environ(pid).split(b"\0"):
                yield int(pid)


def _environ(pid: str) -> bytes:
    """The environment of a process; raises OSError where it cannot be read.

    A program that is about to start has none for a moment, though its parent goes on already.
    """
    environ = b""
    for _ in range(_STARTING_LOOKS):
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123  # a tenth of the time
            environ = file.read()
        if environ or not _is_starting(pid):
            break
        select.select((), (), (), _STARTING_S / _STARTING_LOOKS)
    return environ


def _is_starting(pid: str) -> bool:
    """Whether a program started a moment ago; the kernel's own threads have no /proc/PID/exe."""
    Path(f"/proc/{pid}/exe").readlink()
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    start_s = int(stat.rpartition(")")[2].split()[_START_FIELD]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - start_s < _STARTING_S


def _pause() -> None:
    # Not psutil's wait, which takes the exit status of a child; nor sleep, which fails where the
    # user's program fakes the clock.
    select.select((), (), (), _LOOK_S)


def _in_order(found: Iterable[psutil.Process]) -> list[psutil.Process]:
    return sorted(found, key=lambda process: process.pid)


def _started(process: psutil.Process) -> tuple[float, int]:
    """Sorts parents before their children; one that is gone by now comes first."""
    import psutil

    with suppress(psutil.Error):
        return process.create_time(), process.pid
    return 0.0, process.pid


def _lives(process: psutil.Process) -> bool:
    import psutil

    with suppress(psutil.Error):
        return process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _name(process: psutil.Process) -> str:
    import psutil

    with suppress(psutil.Error):
        return f"{process.name()} ({process.pid})"
    return str(process.pid)

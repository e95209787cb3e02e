"""Linux system calls that Python 3.10 does not offer, and the identity of processes from /proc.

Process ids are reused. A process is identified by its id and the time it started, in clock ticks
since boot.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

from joulewise.units import NS_PER_S

# $JOULEWISE_PLAIN switches this off, so that the code for other systems can be tested on Linux.
IS_LINUX: Final = sys.platform == "linux" and "JOULEWISE_PLAIN" not in os.environ
# From the kernel's headers: prctl.h, time.h, timerfd.h, signalfd.h and siginfo.h.
_PR_SET_PDEATHSIG = 1
_CLOCK_MONOTONIC = 1
_ABSOLUTE = 1
_SIGNALFD_SIZE = 128
_SI_KERNEL = 0x80
_ITIMERSPEC = struct.Struct("4l")


@cache
def _libc() -> ctypes.CDLL:
    """The C library, loaded at first use: other systems import this module, too."""
    return ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when ``parent`` ends, or at once if it has ended."""
    if not IS_LINUX:
        return
    _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


class Timer:
    """A descriptor that becomes readable at a given time (timerfd).

    More exact than a timeout of ``poll`` or ``select``, which Linux may delay by 0.1 %.
    """

    def __init__(self) -> None:
        self._descriptor = _checked(
            _libc().timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        )
        self._set_ns = 0
        self._moment = ctypes.create_string_buffer(_ITIMERSPEC.size)
        self._arguments = (self._descriptor, _ABSOLUTE, self._moment, None)

    def fileno(self) -> int:
        return self._descriptor

    def set(self, t_ns: int, every_ns: int = 0) -> None:
        """Become readable at ``t_ns`` of CLOCK_MONOTONIC, and then every ``every_ns`` if given."""
        if t_ns == self._set_ns:
            return
        self._set_ns = t_ns
        moment = (*divmod(every_ns, NS_PER_S), *divmod(t_ns, NS_PER_S))
        _ITIMERSPEC.pack_into(self._moment, 0, *moment)
        _checked(_libc().timerfd_settime(*self._arguments))

    def close(self) -> None:
        os.close(self._descriptor)


class SignalQueue:
    """Blocks signals and queues them, each with its sender (signalfd)."""

    def __init__(self, numbers: Iterable[int]) -> None:
        numbers = set(numbers)
        self.mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        mask = (ctypes.c_ulong * 16)(sum(1 << number - 1 for number in numbers))
        self._descriptor = _checked(_libc().signalfd(-1, mask, os.O_NONBLOCK | os.O_CLOEXEC))

    def fileno(self) -> int:
        return self._descriptor

    def __iter__(self) -> Iterator[tuple[int, bool, int]]:
        """Number, whether the kernel (a terminal) sent it, and sender of each signal that arrived.

        The sender is a process id, 0 where it is unknown.
        """
        while True:
            try:
                record = os.read(self._descriptor, _SIGNALFD_SIZE)
            except BlockingIOError:
                return
            number, _, code, sender = struct.unpack_from("IiiI", record)
            yield number, code == _SI_KERNEL, sender if code <= 0 else 0

    def close(self) -> None:
        """Unblock the signals; those that have arrived are discarded."""
        for _ in self:
            pass
        os.close(self._descriptor)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask_before)


def arguments(pid: int) -> list[str]:
    """The command line of a process; empty where it is gone."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [os.fsdecode(word) for word in line.split(b"\0")[:-1]]


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


FIRST_NAMESPACE: Final = "pid:[4026531836]"  # the host's; PROC_PID_INIT_INO in proc_ns.h
_PROC: Final = Path("/proc")
_STATE, _PARENT, _STARTED = 0, 1, 19  # fields of /proc/PID/stat after the name, see proc(5)


def boot_id(proc: Path = _PROC) -> str:
    """Identifies this boot of the machine; empty where the kernel does not tell."""
    try:
        return (proc / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def pid_namespace(proc: Path = _PROC) -> str:
    """The namespace of our process ids (a container has its own); empty where unknown."""
    try:
        return str((proc / "self/ns/pid").readlink())
    except OSError:
        return ""


def started_ticks(pid: int, proc: Path = _PROC) -> int:
    """When a process started, in clock ticks since boot; 0 where there is none, or a zombie."""
    fields = stat_fields(pid, proc)
    return int(fields[_STARTED]) if fields and fields[_STATE] != "Z" else 0


def is_alive(pid: int, ticks: int, proc: Path = _PROC) -> bool:
    """Whether the process with this id still is the one that started at ``ticks``."""
    return ticks != 0 and started_ticks(pid, proc) == ticks


def is_gone(pid: int, ticks: int, proc: Path = _PROC) -> bool:
    """Whether the process has certainly ended: /proc may hide the processes of other users."""
    started = started_ticks(pid, proc)
    if started:
        return started != ticks
    try:
        os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, PermissionError)
    return True  # a zombie


def parent_pid(pid: int, proc: Path = _PROC) -> int:
    """The parent's process id; 0 where the process is gone."""
    fields = stat_fields(pid, proc)
    return int(fields[_PARENT]) if fields else 0


def stat_fields(pid: int, proc: Path = _PROC) -> list[str]:
    """The fields of /proc/PID/stat after the name; empty where the process is gone."""
    try:
        text = (proc / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()

"""The guardian as a service of the machine: root turns knobs for a group of users.

The service's unit for systemd, with the path of this installation.
"""

from __future__ import annotations

import fcntl
import grp
import os
import pwd
import signal
import socket
import stat
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Final

from joulewise.control.deadline_device import every_device
from joulewise.control.guardian import Guardian
from joulewise.control.holds import LeaseHolder
from joulewise.control.messages import REFUSED, open_log, user
from joulewise.control.permissions import no_other_owners
from joulewise.control.restore import recover
from joulewise.control.server import GuardianServer
from joulewise.control.service.config import Config, read_config
from joulewise.data import Knob, KnobInfo
from joulewise.devices import FINDER, Device
from joulewise.errors import DeviceError, JoulewiseError, PermissionDeniedError, UsageError
from joulewise.process.installation import program
from joulewise.process.state_dir import state_folder

_AGAIN_S: Final = 5.0  # since devices were last looked for
_PATIENCE_S: Final = 10.0
_BACKLOG: Final = 4096  # all ranks of a job start at once
_LATER: Final = "try again later"
_ENDS: Final = (signal.SIGTERM, signal.SIGINT)


def serve(socket_path: Path, config_path: Path | None, group: str | None) -> None:
    """Until SIGTERM or SIGINT, and then until everything is put back."""
    if os.geteuid() != 0:
        raise PermissionDeniedError(
            "only root may turn knobs for others", f"start it as root: `sudo {program()} guard …`"
        )
    gate = Gate(lambda: read_config(config_path, group))
    state = state_folder(os.environ)
    log = _said_aloud(open_log(state, "guard"))
    with _signals() as signals, _listening(socket_path, gate.config.group, log) as listener:
        find = Finder()
        devices = find()
        if not devices:
            raise DeviceError("no device here has a knob to turn", "see `joulewise doctor`")
        recover(state, lambda: devices, log)
        guardian = Guardian(
            state,
            devices.values(),
            log,
            rules=[gate.check],
            courtesies=[gate.check_strangers],
            find=find,
        )
        refused = _said_aloud(open_log(state, "guard", REFUSED))
        server = GuardianServer(guardian, listener, admit=gate.admit, log=refused)
        log(f"listens at {socket_path} for group {gate.config.group}")
        _tell_systemd("READY=1")
        ends = False

        def hear() -> None:
            nonlocal ends
            for number in signals.recv(64):
                ends = ends or number in _ENDS
                if number == signal.SIGHUP:
                    gate.read_again(log)
                    with suppress(OSError):  # who has removed the socket has to start us again
                        _give(socket_path, gate.config.group)

        server.watch(signals, hear)
        server.serve(lambda: ends)
        _tell_systemd("STOPPING=1")
        server.close()
        _end(guardian, log)


class Gate:
    """Who may come in and what they may ask for, as the configuration has it at the moment."""

    def __init__(self, read: Callable[[], Config]) -> None:
        self._read = read
        self.config = read()

    def read_again(self, log: Callable[[str], None]) -> None:
        """A file that cannot be understood changes nothing."""
        try:
            self.config = self._read()
        except JoulewiseError as error:
            log(f"the configuration stays as it was: {error.message}")
        else:
            log("the configuration was read again")

    def admit(self, holder: LeaseHolder, connected: Sequence[LeaseHolder]) -> None:
        group = self.config.group
        if holder.uid != 0 and not is_member(holder.uid, group):
            raise PermissionDeniedError(
                f"user {user(holder.uid)} is not in group {group}, for which knobs are turned here",
                f"have root run `usermod -aG {group} {user(holder.uid)}`",
            )
        if len(connected) >= self.config.clients:
            raise JoulewiseError(f"{len(connected)} holders are connected already", _LATER)
        own = sum(other.uid == holder.uid for other in connected)
        if own >= self.config.clients_per_user:
            what = f"{own} holders of user {user(holder.uid)} are connected already"
            raise JoulewiseError(what, _LATER)

    def check(self, holder: LeaseHolder, device: Device, knob: Knob, value: float) -> None:
        self.config.check(device.info, knob, value)
        if not self.config.force:
            no_other_owners(holder, device, knob, value)

    def check_strangers(
        self, holder: LeaseHolder, device: Device, knob: Knob, value: float
    ) -> None:
        if self.config.force:  # else it was checked, and cannot be overridden
            no_other_owners(holder, device, knob, value)


def is_member(uid: int, group: str) -> bool:
    """By the system's databases: the group that the user has by default, or one more."""
    try:
        person = pwd.getpwuid(uid)
        return grp.getgrnam(group).gr_gid in os.getgrouplist(person.pw_name, person.pw_gid)
    except (KeyError, OSError):
        return False


class Finder:
    """Looks for the devices with a knob, the first time and when one is asked for in vain.

    A driver may be loaded after the service has started.
    """

    def __init__(
        self,
        every: Callable[[], Mapping[str, Device]] = lambda: every_device(os.environ),
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._every = every
        self._now_s = now_s
        self._again_s = now_s()

    def __call__(self) -> dict[str, Device]:
        """By their uids; none where it was asked a moment ago, or a driver hangs since then."""
        hangs = any(thread.name == FINDER for thread in threading.enumerate())
        if self._now_s() < self._again_s or hangs:
            return {}
        found = {uid: device for uid, device in self._every().items() if _is_turnable(device)}
        self._again_s = self._now_s() + _AGAIN_S
        return found


def _is_turnable(device: Device) -> bool:
    return any(isinstance(knob, KnobInfo) for knob in device.knobs.values())


def _end(guardian: Guardian, log: Callable[[str], None]) -> None:
    if not guardian.close(_PATIENCE_S):
        raise DeviceError(
            "not everything could be put back", "once the device answers, run `joulewise restore`"
        )
    log("ended, with everything put back")


@contextmanager
def _listening(path: Path, group: str, log: Callable[[str], None]) -> Iterator[socket.socket]:
    """A socket for the group alone, from its first moment on."""
    try:
        with suppress(FileExistsError):
            path.parent.mkdir(mode=0o755)
            log(f"made {path.parent}")
        listener = _bound(path, group)
    except OSError as error:
        raise UsageError(
            f"cannot listen at {path}: {error.strerror or error}", "name another with --socket"
        ) from None
    ours = path.stat()
    with listener:
        try:
            yield listener
        finally:
            with suppress(OSError):
                if path.stat().st_ino == ours.st_ino:
                    path.unlink()


def _bound(path: Path, group: str) -> socket.socket:
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    umask = os.umask(0o177)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # of two that start at once, one finds the other
        _remove_stale(path)
        listener.bind(str(path))
        _give(path, group)
        path.chmod(0o660)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(umask)
        os.close(folder)
    return listener


def _give(path: Path, group: str) -> None:
    os.chown(path, 0, grp.getgrnam(group).gr_gid, follow_symlinks=False)


def _remove_stale(path: Path) -> None:
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise UsageError(f"{path} is there, and no socket", "name another with --socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError:  # it is busy, and so alive
            pass
    raise UsageError(f"a service listens at {path} already", "stop it, or name another --socket")


@contextmanager
def _signals() -> Iterator[socket.socket]:
    """Signals as bytes in a socket, so that they are waited for beside the connections."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        before = {each: signal.signal(each, lambda *_: None) for each in (*_ENDS, signal.SIGHUP)}
        signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        try:
            yield ours
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in before.items():
                signal.signal(number, handler)


def _said_aloud(log: Callable[[str], None]) -> Callable[[str], None]:
    """To stderr, too, where systemd's journal reads it."""

    def both(what: str) -> None:
        log(what)
        with suppress(OSError, ValueError):
            sys.stderr.write(" ".join(what.split("\n")) + "\n")
            sys.stderr.flush()

    return both


def _tell_systemd(state: str) -> None:
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.connect(address)
        line.sendall(state.encode())


_UNIT: Final = "joulewise-guard.service"
_PLACE: Final = "@joulewise@"


def systemd_unit() -> str:
    """The text of the unit; it starts the joulewise of this Python."""
    program = _program()
    if not program.exists():
        raise UsageError(
            f"there is no {program}", "install joulewise with pip, which puts its program there"
        )
    text = (files(__package__) / _UNIT).read_text(encoding="utf-8")
    return text.replace(_PLACE, str(program).replace("%", "%%").replace(" ", "\\x20"))


def changeable_by_others(paths: Iterable[Path] | None = None) -> Path | None:
    """The first file or folder through which users other than root can change what root would run.

    Looked at are the program of this installation, its Python and its package, or ``paths``: each
    with the folders that lead to it, and with what links lead to. None where only root can.
    """
    if paths is None:
        paths = (_program(), Path(sys.executable), Path(__file__))
    steps = (step for path in paths for step in _steps(path))
    return next((step for step in steps if _is_changeable(step)), None)


def _program() -> Path:
    return Path(sysconfig.get_path("scripts")) / "joulewise"


def _steps(path: Path) -> Iterator[Path]:
    """Every file and folder on the way to ``path``, and on the way to what links lead to."""
    path = Path(os.path.abspath(path))  # noqa: PTH100  # links matter, too
    for step in (*reversed(path.parents), path):
        yield step
        if step.is_symlink():
            yield from _steps(step.parent / step.readlink())


def _is_changeable(path: Path) -> bool:
    """Whether another user than root owns it, or may write it.

    In a folder with the sticky bit, such as /tmp, nobody replaces what belongs to root.
    """
    try:
        told = path.lstat()
    except OSError:
        return True  # whoever makes it says what root runs
    if told.st_uid != 0:
        return True
    if stat.S_ISLNK(told.st_mode) or (stat.S_ISDIR(told.st_mode) and told.st_mode & stat.S_ISVTX):
        return False
    by_group = told.st_mode & stat.S_IWGRP and told.st_gid != 0
    return bool(by_group or told.st_mode & stat.S_IWOTH)

"""The guard service: a guardian that runs as root and changes settings for a group of users."""

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

from joulewise.control.deadline_device import open_all_devices
from joulewise.control.guardian import Guardian
from joulewise.control.holds import LeaseHolder
from joulewise.control.messages import REFUSED, open_log, user_name
from joulewise.control.permissions import refuse_other_owners
from joulewise.control.restore import recover
from joulewise.control.server import GuardianServer
from joulewise.control.service.config import Config, read_config
from joulewise.data import ControlInfo, ControlKind
from joulewise.devices import DISCOVERY_THREAD, Device
from joulewise.errors import (
    DeviceError,
    JoulewiseError,
    PermissionDeniedError,
    UsageError,
    installed_command,
)
from joulewise.process.state_dir import state_folder

# Chosen: how often devices are searched again where an unknown one is requested; how long the
# service tries to restore at its end, within systemd's 90 s; and connections that wait to be
# accepted, as all ranks of a job start at once. Doubled, each takes twice as long or as many.
_REDISCOVERY_S: Final = 5.0
_RESTORE_S: Final = 10.0
_MAX_QUEUE: Final = 4096
_RETRY_HINT: Final = "try again later"
_END_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def serve(socket_path: Path, config_path: Path | None, group: str | None) -> None:
    """Serve until SIGTERM or SIGINT, then until all settings are restored.

    Raises where this is not root, the configuration is wrong, or no device has a setting.
    """
    if os.geteuid() != 0:
        raise PermissionDeniedError(
            "only root can change settings for others",
            f"start it as root: `sudo {installed_command()} guard …`",
        )
    access = AccessControl(lambda: read_config(config_path, group))
    state = state_folder(os.environ)
    log = _also_to_stderr(open_log(state, "guard"))
    with _signal_socket() as signals, _listening(socket_path, access.config.group, log) as listener:
        find = DeviceFinder()
        devices = find()
        if not devices:
            raise DeviceError("no device here has a setting to change", "run `joulewise doctor`")
        recover(state, lambda: devices, log)
        guardian = Guardian(
            state,
            devices.values(),
            log,
            rules=[access.check],
            overridable_rules=[access.check_other_users],
            find=find,
        )
        log_refusal = _also_to_stderr(open_log(state, "guard", REFUSED))
        server = GuardianServer(guardian, listener, admit=access.admit, log=log_refusal)
        log(f"listening at {socket_path} for group {access.config.group}")
        _tell_systemd("READY=1")
        is_ending = False

        def on_signal() -> None:
            nonlocal is_ending
            for number in signals.recv(64):
                is_ending = is_ending or number in _END_SIGNALS
                if number == signal.SIGHUP:
                    access.reload(log)
                    with suppress(OSError):  # if the socket was removed, the service must restart
                        _set_group(socket_path, access.config.group)

        server.add_listener(signals, on_signal)
        server.serve(lambda: is_ending)
        _tell_systemd("STOPPING=1")
        server.close()
        _close(guardian, log)


class AccessControl:
    """Who may connect and what they may change, by the configuration as it is now."""

    def __init__(self, read: Callable[[], Config]) -> None:
        self._read = read
        self.config = read()

    def reload(self, log: Callable[[str], None]) -> None:
        """Read the configuration again; a file with an error changes nothing."""
        try:
            self.config = self._read()
        except JoulewiseError as error:
            log(f"the configuration is unchanged: {error.message}")
        else:
            log("the configuration was read again")

    def admit(self, holder: LeaseHolder, connected: Sequence[LeaseHolder]) -> None:
        group = self.config.group
        if holder.uid != 0 and not is_member(holder.uid, group):
            raise PermissionDeniedError(
                f"user {user_name(holder.uid)} is not in group {group}, whom this service is for",
                f"have root run `usermod -aG {group} {user_name(holder.uid)}`",
            )
        if len(connected) >= self.config.clients:
            raise JoulewiseError(f"{len(connected)} holders are connected already", _RETRY_HINT)
        own = sum(other.uid == holder.uid for other in connected)
        if own >= self.config.clients_per_user:
            message = f"{own} holders of user {user_name(holder.uid)} are connected already"
            raise JoulewiseError(message, _RETRY_HINT)

    def check(
        self, holder: LeaseHolder, device: Device, control: ControlKind, value: float
    ) -> None:
        self.config.check(device.info, control, value)
        if not self.config.force:
            refuse_other_owners(holder, device, control, value)

    def check_other_users(
        self, holder: LeaseHolder, device: Device, control: ControlKind, value: float
    ) -> None:
        if self.config.force:  # otherwise ``check`` did it, and it cannot be overridden
            refuse_other_owners(holder, device, control, value)


def is_member(uid: int, group: str) -> bool:
    """Whether it is the user's primary or a supplementary group, by the system's databases."""
    try:
        person = pwd.getpwuid(uid)
        return grp.getgrnam(group).gr_gid in os.getgrouplist(person.pw_name, person.pw_gid)
    except (KeyError, OSError):
        return False


class DeviceFinder:
    """Discovers devices with a setting, at the start and when an unknown one is requested.

    A driver may be loaded after the service has started.
    """

    def __init__(
        self,
        every: Callable[[], Mapping[str, Device]] = lambda: open_all_devices(os.environ),
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._every = every
        self._now_s = now_s
        self._next_s = now_s()

    def __call__(self) -> dict[str, Device]:
        """Devices by their uids; empty within some seconds of the last call, or while one hangs."""
        hangs = any(thread.name == DISCOVERY_THREAD for thread in threading.enumerate())
        if self._now_s() < self._next_s or hangs:
            return {}
        devices = {uid: device for uid, device in self._every().items() if _has_control(device)}
        self._next_s = self._now_s() + _REDISCOVERY_S
        return devices


def _has_control(device: Device) -> bool:
    return any(isinstance(control, ControlInfo) for control in device.controls.values())


def _close(guardian: Guardian, log: Callable[[str], None]) -> None:
    if not guardian.close(_RESTORE_S):
        raise DeviceError(
            "some settings could not be restored",
            "once the device answers, run `joulewise restore`",
        )
    log("ended; all settings are restored")


@contextmanager
def _listening(path: Path, group: str, log: Callable[[str], None]) -> Iterator[socket.socket]:
    """A listening socket that only the group can open, from its first moment on."""
    try:
        with suppress(FileExistsError):
            path.parent.mkdir(mode=0o755)
            log(f"created {path.parent}")
        listener = _bind(path, group)
    except OSError as error:
        raise UsageError(
            f"cannot listen at {path}: {error.strerror or error}", "choose another with --socket"
        ) from None
    ours = path.stat()
    with listener:
        try:
            yield listener
        finally:
            with suppress(OSError):
                if path.stat().st_ino == ours.st_ino:
                    path.unlink()


def _bind(path: Path, group: str) -> socket.socket:
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    umask = os.umask(0o177)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # of two that start at once, one sees the other
        _remove_stale(path)
        listener.bind(str(path))
        _set_group(path, group)
        path.chmod(0o660)
        listener.listen(_MAX_QUEUE)
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(umask)
        os.close(folder)
    return listener


def _set_group(path: Path, group: str) -> None:
    os.chown(path, 0, grp.getgrnam(group).gr_gid, follow_symlinks=False)


def _remove_stale(path: Path) -> None:
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise UsageError(f"{path} is not a socket", "choose another with --socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError:  # it is busy, and therefore alive
            pass
    raise UsageError(f"a service already listens at {path}", "stop it, or choose another --socket")


@contextmanager
def _signal_socket() -> Iterator[socket.socket]:
    """A socket that receives signals as bytes, to be polled with the connections."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        before = {
            each: signal.signal(each, lambda *_: None) for each in (*_END_SIGNALS, signal.SIGHUP)
        }
        signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        try:
            yield ours
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in before.items():
                signal.signal(number, handler)


def _also_to_stderr(log: Callable[[str], None]) -> Callable[[str], None]:
    """Write each line to stderr as well, where systemd's journal reads it."""

    def both(line: str) -> None:
        log(line)
        with suppress(OSError, ValueError):
            sys.stderr.write(" ".join(line.split("\n")) + "\n")
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
_PROGRAM_PLACEHOLDER: Final = "@joulewise@"


def systemd_unit() -> str:
    """The text of a systemd unit that starts the joulewise of this Python."""
    program = _program()
    if not program.exists():
        raise UsageError(f"there is no {program}", "install joulewise with pip, which creates it")
    text = (files(__package__) / _UNIT).read_text(encoding="utf-8")
    return text.replace(_PROGRAM_PLACEHOLDER, str(program).replace("%", "%%").replace(" ", "\\x20"))


def changeable_by_others(paths: Iterable[Path] | None = None) -> Path | None:
    """The first file or folder through which users other than root can change what root would run.

    Checked are the program of this installation, its Python and its package, or ``paths``: each
    with its parent folders, and with the targets of links. None where only root can change them.
    """
    if paths is None:
        paths = (_program(), Path(sys.executable), Path(__file__))
    steps = (step for path in paths for step in _path_steps(path))
    return next((step for step in steps if _is_changeable(step)), None)


def _program() -> Path:
    return Path(sysconfig.get_path("scripts")) / "joulewise"


def _path_steps(path: Path) -> Iterator[Path]:
    """``path``, its parent folders, and the same for the targets of links among them."""
    path = Path(os.path.abspath(path))  # noqa: PTH100  # links matter, too
    for step in (*reversed(path.parents), path):
        yield step
        if step.is_symlink():
            yield from _path_steps(step.parent / step.readlink())


def _is_changeable(path: Path) -> bool:
    """Whether another user than root owns it, or may write it.

    In a folder with the sticky bit, such as /tmp, nobody replaces what belongs to root.
    """
    try:
        status = path.lstat()
    except OSError:
        return True  # whoever creates it decides what root runs
    if status.st_uid != 0:
        return True
    if stat.S_ISLNK(status.st_mode) or (
        stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    ):
        return False
    by_group = status.st_mode & stat.S_IWGRP and status.st_gid != 0
    return bool(by_group or status.st_mode & stat.S_IWOTH)

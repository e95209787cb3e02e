"""The state folder: what outlives joulewise's processes, and the journals that a crash left in it.

Every command checks for such leftovers before it starts, so this module stays cheap to import: the
check is one directory listing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from joulewise.errors import PermissionDeniedError, UsageError
from joulewise.process.linux import boot_id, is_gone, pid_namespace

ROOT_STATE_FOLDER: Final = Path("/var/lib/joulewise")
# Debian's home folder for users that have none, as in many containers. Nothing is stored there.
_NO_HOME: Final = Path("/nonexistent")


def state_folder(environ: Mapping[str, str]) -> Path:
    """``$JOULEWISE_STATE``, else /var/lib/joulewise for root, else the XDG state folder."""
    if environ.get("JOULEWISE_STATE"):
        return Path(environ["JOULEWISE_STATE"])
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return ROOT_STATE_FOLDER
    home = environ.get("XDG_STATE_HOME", "")
    # The specification says to ignore a path that is not absolute.
    base = Path(home) if Path(home).is_absolute() else _home() / ".local/state"
    return base / "joulewise"


def state_folders(environ: Mapping[str, str]) -> list[Path]:
    """The user's folder and root's, which holds what concerns every user."""
    own = state_folder(environ)
    is_only_one = own == ROOT_STATE_FOLDER or bool(environ.get("JOULEWISE_STATE"))
    return [own] if is_only_one else [own, ROOT_STATE_FOLDER]


def make_state_folder(folder: Path) -> Path:
    """Create the folder if need be (mode 755 whatever the umask), and return it.

    Raises PermissionDeniedError where we are root and another user could change its contents.
    """
    if _NO_HOME in folder.parents:
        raise UsageError(
            "this user has no home folder to store state in",
            "set JOULEWISE_STATE to a folder that you can write to",
        )
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        folder.chmod(0o755)
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        _check_owned_by_root(folder)
    return folder


def is_safe(folder: Path) -> bool:
    """Whether this process can trust the folder's contents: see ``made``."""
    try:
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            _check_owned_by_root(folder)
    except (OSError, PermissionDeniedError):
        return False
    return True


def _check_owned_by_root(folder: Path) -> None:
    """Raise where others own the folder, or a link to it, which they could redirect."""
    owners = {folder.lstat().st_uid, folder.stat().st_uid} - {0}
    if owners:
        raise PermissionDeniedError(
            f"{folder} belongs to user {_user_name(owners.pop())}, who could change root's state",
            f"run `chown root {folder}` if nothing in it is theirs, "
            "or set JOULEWISE_STATE to a folder of root's",
        )
    if stat.S_IMODE(folder.stat().st_mode) & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionDeniedError(
            f"{folder} is writable by other users, who could change root's state",
            f"run `chmod go-w {folder}`, or set JOULEWISE_STATE to a folder of root's",
        )


def _user_name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        return _NO_HOME


# A guardian's journal of changed settings, and the lock that it holds for as long as it lives.
FOLDER: Final = "leases"
ENDING: Final = ".journal"
LOCK: Final = ".lock"
_MAX_HEADER_B: Final = 1 << 12


def has_leftovers(state: Path) -> bool:
    """Whether there is a journal whose guardian is dead."""
    try:
        with os.scandir(state / FOLDER) as entries:
            return any(entry.name.endswith(ENDING) and not is_live(entry.path) for entry in entries)
    except OSError:
        return False


def may_restore(state: Path) -> bool:
    """Whether this user may undo the leftovers; nothing has to be written for that."""
    try:
        return os.geteuid() in {0, (state / FOLDER).stat().st_uid}
    except OSError:
        return False


def lock_of(journal: str) -> str:
    """The file that the journal's guardian locks while it lives.

    Not the journal itself: everybody can read that, and whoever can read a file can lock it.
    """
    return journal.removesuffix(ENDING) + LOCK


def is_live(journal: str) -> bool:
    """Whether the guardian that writes this journal is alive."""
    import fcntl  # Windows, which can show runs, has none

    try:
        descriptor = os.open(lock_of(journal), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # another user's, or it was deleted
        return _is_writer_alive(journal)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return _is_writer_alive(journal)
    finally:
        os.close(descriptor)
    return False


def _is_writer_alive(journal: str) -> bool:
    """Whether the process named in the journal runs; True where it is in another container."""
    import json

    try:
        with open(journal, "rb", opener=_open) as file:
            header = json.loads(file.readline(_MAX_HEADER_B))
        if header["boot_id"] != boot_id():
            return False
        is_elsewhere = header["namespace"] != pid_namespace()
        return is_elsewhere or not is_gone(int(header["pid"]), int(header["ticks"]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return False


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)

"""Where joulewise keeps what outlives its processes.

Whether a guardian was killed before it had put everything back.

Every command asks: it is one look into a folder, and nothing else is loaded for it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from joulewise.errors import PermissionDeniedError, UsageError
from joulewise.process.linux import boot_id, is_gone, pid_namespace

OF_ROOT: Final = Path("/var/lib/joulewise")
# The home of a user that only a container's runtime knows of, as Debian has it: nothing is kept in
# it, and nothing is there to be read.
_NO_HOME: Final = Path("/nonexistent")


def state_folder(environ: Mapping[str, str]) -> Path:
    """``$JOULEWISE_STATE``, else /var/lib/joulewise for root, else the XDG state folder."""
    if environ.get("JOULEWISE_STATE"):
        return Path(environ["JOULEWISE_STATE"])
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return OF_ROOT
    home = environ.get("XDG_STATE_HOME", "")
    # The specification says to ignore a path that is not absolute.
    base = Path(home) if Path(home).is_absolute() else _home() / ".local/state"
    return base / "joulewise"


def state_folders(environ: Mapping[str, str]) -> list[Path]:
    """Ours, and root's, where what concerns every user is kept."""
    ours = state_folder(environ)
    alone = ours == OF_ROOT or bool(environ.get("JOULEWISE_STATE"))
    return [ours] if alone else [ours, OF_ROOT]


def made(folder: Path) -> Path:
    """The folder, for all to read and its owner to write, whatever the umask.

    Raises where it is root's to use and another user can change what is in it.
    """
    if _NO_HOME in folder.parents:
        raise UsageError(
            "there is no home folder to keep anything in",
            "set JOULEWISE_STATE to a folder that you can write",
        )
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        folder.chmod(0o755)
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        _check_is_of_root(folder)
    return folder


def is_safe(folder: Path) -> bool:
    """Whether what is in the folder can be believed by this process: see ``made``."""
    try:
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            _check_is_of_root(folder)
    except (OSError, PermissionDeniedError):
        return False
    return True


def _check_is_of_root(folder: Path) -> None:
    """Also the link that leads to it: who owns that can have it lead elsewhere."""
    owners = {folder.lstat().st_uid, folder.stat().st_uid} - {0}
    if owners:
        raise PermissionDeniedError(
            f"{folder} belongs to user {_user_name(owners.pop())}, who could change what root "
            "keeps in it",
            f"run `chown root {folder}` if nothing in it is theirs, "
            "or set JOULEWISE_STATE to a folder of root's",
        )
    if stat.S_IMODE(folder.stat().st_mode) & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionDeniedError(
            f"other users may write in {folder}, and could change what root keeps in it",
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


FOLDER: Final = "leases"
ENDING: Final = ".journal"
LOCK: Final = ".lock"
_LONGEST_HEADER_B: Final = 1 << 12


def has_leftover(state: Path) -> bool:
    """Whether there is a journal without its guardian."""
    try:
        with os.scandir(state / FOLDER) as entries:
            return any(entry.name.endswith(ENDING) and not is_live(entry.path) for entry in entries)
    except OSError:
        return False


def may_put_back(state: Path) -> bool:
    """Whether the leftovers are ours to undo; for that, nothing has to be written."""
    try:
        return os.geteuid() in {0, (state / FOLDER).stat().st_uid}
    except OSError:
        return False


def lock_of(journal: str) -> str:
    """What the guardian of this journal locks while it lives.

    Not the journal: everybody can read that, and who can read a file can lock it.
    """
    return journal.removesuffix(ENDING) + LOCK


def is_live(journal: str) -> bool:
    import fcntl  # which not every system has that can show runs

    try:
        descriptor = os.open(lock_of(journal), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # another user's, or somebody has cleaned up
        return _runs(journal)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return _runs(journal)
    finally:
        os.close(descriptor)
    return False


def _runs(journal: str) -> bool:
    """Whether the process runs that the journal names; in another container, nobody can say."""
    import json

    try:
        with open(journal, "rb", opener=_open) as file:
            told = json.loads(file.readline(_LONGEST_HEADER_B))
        if told["boot_id"] != boot_id():
            return False
        of_another = told["namespace"] != pid_namespace()
        return of_another or not is_gone(int(told["pid"]), int(told["ticks"]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return False


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)

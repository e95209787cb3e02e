"""One recorder for all commands of a group on this node, such as the tasks of one ``srun``.

The recorder listens at an abstract Unix socket (unix(7)) named after the user, the store and the
group. Only one process can bind it, whoever comes second joins the first, and the kernel frees it
when the recorder has ended in whatever way: there is no lock that could be left behind.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from joulewise.process.json_lines import JsonSocket

_JOB_IDS: Final = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "OAR_JOB_ID")
# Connections that wait to be accepted. Chosen: more tasks than start at once on a node.
_MOST_WAITING: Final = 256


class TakenError(Exception):
    """Another user listens at our address."""


def job_id(environ: Mapping[str, str]) -> str:
    """The scheduler's job that this process belongs to; empty where there is none.

    Under Slurm it is the job's step, with which its processes, and so the recorder, end.
    """
    if environ.get("SLURM_JOB_ID") and environ.get("SLURM_STEP_ID"):
        return f"{environ['SLURM_JOB_ID']}.{environ['SLURM_STEP_ID']}"
    for name in _JOB_IDS:
        if environ.get(name):
            return environ[name]
    # Grid Engine; JOB_ID alone may be any program's variable.
    return environ.get("JOB_ID", "") if "SGE_O_WORKDIR" in environ else ""


def address(store: Path, group: str) -> bytes:
    """Where the group's recorder listens on this node, for this user and this store."""
    identity = "\0".join((str(os.getuid()), os.path.realpath(store), group))
    return b"\0joulewise-" + hashlib.sha256(os.fsencode(identity)).hexdigest()[:32].encode()


def join(listen_address: bytes) -> JsonSocket | None:
    """A connection to the recorder that listens there; None where there is none."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(listen_address)
    except OSError:
        connection.close()
        return None
    joined = JsonSocket(connection)
    if joined.peer()[1] == os.getuid():
        return joined
    joined.close()
    raise TakenError


def listen(listen_address: bytes) -> socket.socket | None:
    """A socket bound to the address; None where another recorder has it."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(listen_address)
    except OSError:
        listener.close()
        return None
    listener.listen(_MOST_WAITING)
    return listener

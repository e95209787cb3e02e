"""One recorder for all commands of a group on this node, such as the tasks of one ``srun``.

The recorder listens at an address of the kernel's that is made from the store and the group. Only
one can have it, whoever is second joins the first, and it is free again when the recorder has
ended, however that came: there is no lock that could be left behind.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from joulewise.process.json_lines import Wire

_JOB_IDS: Final = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "OAR_JOB_ID")
_MOST_WAITING: Final = 256


class TakenError(Exception):
    """Another user is at our address."""


def job_id(environ: Mapping[str, str]) -> str:
    """The scheduler's job that this process belongs to; empty where there is none.

    Under Slurm it is the job's step: a step's processes, and so its recorder, end with it.
    """
    if environ.get("SLURM_JOB_ID") and environ.get("SLURM_STEP_ID"):
        return f"{environ['SLURM_JOB_ID']}.{environ['SLURM_STEP_ID']}"
    for name in _JOB_IDS:
        if environ.get(name):
            return environ[name]
    # JOB_ID alone may be anybody's variable.
    return environ.get("JOB_ID", "") if "SGE_O_WORKDIR" in environ else ""


def address(store: Path, group: str) -> bytes:
    """Where the group's recorder listens on this node, for this user and this store."""
    words = "\0".join((str(os.getuid()), os.path.realpath(store), group))
    return b"\0joulewise-" + hashlib.sha256(os.fsencode(words)).hexdigest()[:32].encode()


def join(where: bytes) -> Wire | None:
    """A connection to the recorder that is there; None where there is none."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(where)
    except OSError:
        connection.close()
        return None
    wire = Wire(connection)
    if wire.peer()[1] == os.getuid():
        return wire
    wire.close()
    raise TakenError


def listen(where: bytes) -> socket.socket | None:
    """Be the recorder there; None where another one is."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(where)
    except OSError:
        listener.close()
        return None
    listener.listen(_MOST_WAITING)
    return listener

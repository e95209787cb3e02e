"""One recorder for all commands of a group on this node, such as the tasks of one ``srun``.

The recorder listens at an abstract Unix socket (unix(7)) named after the user, the store and the
group. Only one process can bind it, whoever comes second joins the first, and the kernel frees it
when the recorder has ended in whatever way: there is no lock that could be left behind.

The commands need not see the same GPUs: ``srun`` gives each task its own by CUDA_VISIBLE_DEVICES,
and where the cluster restricts devices by cgroup, a task cannot even open the GPUs of another. The
recorder runs in the cgroup of the command that came first, so those that join send it which GPUs
they can use, as far as can be told without asking a driver.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from joulewise.process.json_lines import JsonSocket

if TYPE_CHECKING:
    from joulewise.store.manifest import RecordedDevice

_JOB_IDS: Final = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "OAR_JOB_ID")
# Connections that wait to be accepted. Chosen: more tasks than start at once on a node.
_MOST_WAITING: Final = 256
# The variables that hide GPUs from a program, or change their order (see ``devices.cuda_visible``
# and ``devices.amd.hip_visible``).
_VARIABLES: Final = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
)
_DEV_VARIABLE: Final = "JOULEWISE_DEV"
_NODE: Final = re.compile(r"nvidia\d+")
_HINT: Final = (
    "let all tasks of a node open all GPUs of the job: srun --gpus-per-node=N "
    "instead of --gpus-per-task, or --gpu-bind=none"
)


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


@dataclass(frozen=True)
class GpuVisibility:
    """The variables that hide GPUs from a command, and the device nodes that it can open.

    ``nodes`` are names such as ``nvidia0`` (in /dev, or the folder that $JOULEWISE_DEV names).
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> GpuVisibility:
        """That of a command with this environment, started by this process."""
        variables = {name: environ[name] for name in _VARIABLES if name in environ}
        hides_all = not variables.get("CUDA_VISIBLE_DEVICES", "all").strip()
        return cls(variables, () if hides_all else _list_openable(environ))

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> GpuVisibility:
        return cls(dict(message["variables"]), tuple(message["nodes"]))

    def environ(self, environ_of_other: Mapping[str, str]) -> dict[str, str]:
        """The environment of another process with these variables instead of its own."""
        rest = {key: value for key, value in environ_of_other.items() if key not in _VARIABLES}
        return {**rest, **self.variables}

    def missing(self, recorder: Mapping[str, str]) -> tuple[RecordedDevice, ...]:
        """The GPUs that a recorder with that environment cannot open, and the command can."""
        # Imported late: a command that joins waits for this process.
        from joulewise.data import DeviceInfo, Kind, Unavailable
        from joulewise.store.manifest import RecordedDevice

        missing_nodes = sorted(set(self.nodes) - set(_list_openable(recorder)))
        return tuple(
            RecordedDevice(
                DeviceInfo(node, Kind.GPU, f"GPU at /dev/{node}", f"/dev/{node}", "nvidia"),
                unavailable=Unavailable(
                    f"the group's recorder, which the first command started, may not open "
                    f"/dev/{node}",
                    _HINT,
                ),
            )
            for node in missing_nodes
        )


def _list_openable(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The device nodes of GPUs that this process may open; none is opened, which could wake a GPU.

    access(2) respects the device cgroup (``devcgroup_inode_permission`` in ``inode_permission``).
    """
    folder = Path(environ.get(_DEV_VARIABLE, "/dev"))
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError:
        return ()
    return tuple(
        name
        for name in sorted(names)
        if _NODE.fullmatch(name) and os.access(folder / name, os.R_OK | os.W_OK)
    )

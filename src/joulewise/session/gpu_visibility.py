"""Which GPUs a command can use, as far as can be told without asking a driver.

The commands of a group share one recorder, and need not see the same GPUs: ``srun`` gives each task
its own by CUDA_VISIBLE_DEVICES, and where the cluster restricts devices by cgroup, a task cannot
even open the GPUs of another. The recorder runs in the cgroup of the command that came first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from joulewise.store.manifest import RecordedDevice

# The variables that hide GPUs from a program, or change their order (see ``devices.visible`` and
# ``devices.amd.visible``).
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

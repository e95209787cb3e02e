"""The container and the machine that a run was made in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Container:
    """A container. ``runtime`` is docker, podman, kubernetes, apptainer, singularity, lxc or other.

    ``id`` and ``image`` are empty where they cannot be found from inside.
    """

    runtime: str
    id: str = ""
    image: str = ""


@dataclass(frozen=True)
class MachineResources:
    """Cores and memory of a machine. None is what cannot be read, and a limit that is not set.

    ``cores_allowed`` is what affinity and the cgroup's quota leave of the logical cores: a quota
    of half a core is 0.5. ``ram_limit_b`` is the lowest limit of the cgroups around the process.
    """

    cores_physical: int | None = None
    cores_logical: int | None = None
    cores_allowed: float | None = None
    ram_b: int | None = None
    ram_limit_b: int | None = None

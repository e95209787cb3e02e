"""The container in which a run took place, told from the kernel's files and the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

# Engines name a container by 64 hexadecimal digits, in its cgroup and in the paths of its mounts.
_ID: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_MOUNTED: Final = re.compile(r"containers/([0-9a-f]{64})/")
# The words that an engine leaves in the path of a cgroup, the more special one first.
_IN_CGROUP: Final = {
    "kubepods": "kubernetes",
    "libpod": "podman",
    "docker": "docker",
    "containerd": "containerd",
    "lxc": "lxc",
    "machine.slice/systemd-nspawn": "systemd-nspawn",
}


@dataclass(frozen=True)
class Container:
    """``runtime`` is docker, podman, kubernetes, apptainer, singularity, lxc or the like.

    ``id`` and ``image`` are empty where they cannot be told from inside.
    """

    runtime: str
    id: str = ""
    image: str = ""


def detect_container(environ: Mapping[str, str], root: Path = Path("/")) -> Container | None:
    """The innermost one that this process is in; None where there is no sign of any.

    ``environ`` is that of the measured program.
    """
    for name in ("APPTAINER", "SINGULARITY"):
        if image := environ.get(f"{name}_CONTAINER"):
            return Container(name.lower(), image=PurePosixPath(image).name)
    cgroup = _text(root / "proc/self/cgroup")
    runtime = _runtime(environ, cgroup, root)
    if not runtime:
        return None
    # Podman writes this file; it has content where the container is rootless or privileged.
    told = dict(re.findall(r'^(\w+)="([^"]*)"', _text(root / "run/.containerenv"), re.MULTILINE))
    return Container(runtime, told.get("id") or _id(cgroup, root), told.get("image", ""))


def _runtime(environ: Mapping[str, str], cgroup: str, root: Path) -> str:
    if "KUBERNETES_SERVICE_HOST" in environ:
        return "kubernetes"
    for word, runtime in _IN_CGROUP.items():
        if word in cgroup:
            return runtime
    if (root / "run/.containerenv").exists():
        return "podman"
    if (root / ".dockerenv").exists():
        return "docker"
    # What systemd's container interface asks of every other engine (lxc, systemd-nspawn, …).
    return environ.get("container", "") or _text(root / "run/systemd/container").strip()


def _id(cgroup: str, root: Path) -> str:
    """Of the innermost; where the cgroup's path is hidden (version 2), from a mounted file."""
    if named := _ID.findall(cgroup):
        return str(named[-1])
    mounted = _MOUNTED.search(_text(root / "proc/self/mountinfo"))
    return mounted[1] if mounted else ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""

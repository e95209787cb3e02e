"""Where a run took place: host, machine, container, versions, git commit, and some variables.

The container in which a run took place, told from the kernel's files and the environment.

How much of a machine a run could use: its cores and its RAM, and what is allowed of them.

What the measured processes told of their frameworks when they ended (``hooks.frameworks``).
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any, Final

from joulewise.data.machine import Container, MachineResources
from joulewise.store.files import read_regular
from joulewise.store.layout import MARKS
from joulewise.store.manifest import Manifest
from joulewise.store.redact import mask
from joulewise.units import NS_PER_S

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


_B_PER_KIB: Final = 1024


def read_machine(root: Path = Path("/")) -> MachineResources:
    ram_b = _ram_b(root)
    return MachineResources(
        cores_physical=_cores_physical(root),
        cores_logical=os.cpu_count(),
        cores_allowed=_cores_allowed(root),
        ram_b=ram_b,
        ram_limit_b=_ram_limit_b(root, ram_b),
    )


def _cores_physical(root: Path) -> int | None:
    """Logical cores that share a physical one list the same siblings."""
    files = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/topology/thread_siblings_list")
    texts = (_text(file).strip() for file in files)
    return len({text for text in texts if text}) or None


def _cores_allowed(root: Path) -> float | None:
    limits = list(_quotas(root))
    if hasattr(os, "sched_getaffinity"):
        limits.append(float(len(os.sched_getaffinity(0))))
    return min(limits, default=None)


def _quotas(root: Path) -> Iterator[float]:
    """In cores, of every cgroup around this process: the lowest is the one in force."""
    for folder in _cgroups(root, "cpu"):
        quota_us, _, period_us = _text(folder / "cpu.max").strip().partition(" ")  # version 2
        if not quota_us:
            quota_us = _text(
                folder / "cpu.cfs_quota_us"
            ).strip()  # version 1, -1 where there is none
            period_us = _text(folder / "cpu.cfs_period_us").strip()
        if quota_us.isdigit() and period_us.isdigit() and int(period_us):
            yield int(quota_us) / int(period_us)


def _ram_b(root: Path) -> int | None:
    total = re.search(r"^MemTotal:\s+(\d+) kB", _text(root / "proc/meminfo").strip(), re.MULTILINE)
    return int(total[1]) * _B_PER_KIB if total else None


def _ram_limit_b(root: Path, ram_b: int | None) -> int | None:
    limits = [
        int(text)
        for folder in _cgroups(root, "memory")
        for name in ("memory.max", "memory.limit_in_bytes")  # versions 2 and 1
        if (text := _text(folder / name).strip()).isdigit()
    ]
    # Version 1 writes "no limit" as a number larger than any machine.
    lowest = min(limits, default=None)
    return None if lowest is None or (ram_b is not None and lowest >= ram_b) else lowest


def _cgroups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of this process's cgroup and those above it, of either version.

    In a container the path may be the host's, of which only the top is mounted: that is among them.
    """
    mount = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").strip().splitlines():
        number, _, named = line.partition(":")
        controllers, _, path = named.partition(":")
        if number == "0" and not controllers:
            top = mount
        elif controller in controllers.split(","):
            top = mount / controller
        else:
            continue
        folder = top / path.strip("/")
        yield from (each for each in (folder, *folder.parents) if each.is_relative_to(top))


_GIT_S: Final = 1.0
_LIBRARIES: Final = ("joulewise", "numpy", "pyarrow", "nvidia-ml-py")
# Of the measured program, where it shares our environment and does not tell itself
# (``record.frameworks``). Nothing of them is imported.
FRAMEWORKS: Final = ("torch", "keras", "tensorflow", "jax", "lightning", "transformers")
# What changes how a training runs. Everything else may hold a secret, and stays out.
_KEPT: Final = re.compile(
    r"CUDA_(VISIBLE_DEVICES|DEVICE_ORDER|LAUNCH_BLOCKING|MODULE_LOADING|DEVICE_MAX_CONNECTIONS)"
    r"|NVIDIA_(VISIBLE_DEVICES|TF32_OVERRIDE)|(ROCR|HIP)_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL"
    r"|(OMP|MKL|OPENBLAS|NUMEXPR|VECLIB_MAXIMUM|RAYON)_NUM_THREADS|OMP_(PROC_BIND|PLACES|SCHEDULE)"
    r"|KMP_(AFFINITY|BLOCKTIME)"
    r"|SLURM_(JOB_ID|JOB_NAME|JOB_PARTITION|JOB_NUM_NODES|JOB_GPUS|NNODES|NTASKS|NODEID|PROCID"
    r"|LOCALID|CPUS_PER_TASK|CPUS_ON_NODE|GPUS|GPUS_ON_NODE|STEP_ID|ARRAY_JOB_ID|ARRAY_TASK_ID)"
    r"|PBS_(JOBID|NODENUM|NUM_PPN)|LSB_(JOBID|JOBINDEX)"
    r"|(LOCAL_|GROUP_|ROLE_)?RANK|(LOCAL_|ROLE_)?WORLD_SIZE|MASTER_(ADDR|PORT)"
    r"|NCCL_(DEBUG|ALGO|PROTO|P2P_DISABLE|P2P_LEVEL|IB_DISABLE|SOCKET_IFNAME|MAX_NCHANNELS|SHM_DISABLE)"
    r"|(PYTORCH_CUDA_ALLOC_CONF|PYTORCH_ALLOC_CONF|TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"
    r"|TORCH_CUDNN_V8_API_DISABLED|TORCHDYNAMO_DISABLE|CUBLAS_WORKSPACE_CONFIG|KERAS_BACKEND"
    r"|TF_ENABLE_ONEDNN_OPTS|TF_FORCE_GPU_ALLOW_GROWTH|XLA_FLAGS|JAX_PLATFORMS"
    r"|TOKENIZERS_PARALLELISM|ACCELERATE_MIXED_PRECISION|CONDA_DEFAULT_ENV|PYTHONHASHSEED)"
)


@dataclass(frozen=True)
class RunEnvironment:
    host: Mapping[str, str] = field(default_factory=dict)
    git: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: MachineResources | None = None
    container: Container | None = None


def read_run_environment(cwd: Path | None, environ: Mapping[str, str]) -> RunEnvironment:
    """All of it. Never raises, and takes about a second where git is slow."""
    git = git_state(cwd, environ) if cwd else {}
    return RunEnvironment(
        host=_host(),
        git=git,
        environ=kept(environ),
        versions=_versions(),
        machine=read_machine(),
        container=detect_container(environ),
    )


def kept(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables on the list; a secret in one of them is masked all the same."""
    return {
        name: mask([value])[0] for name, value in sorted(environ.items()) if _KEPT.fullmatch(name)
    }


def git_state(cwd: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The commit and whether files differ from it; empty outside of a repository."""
    command = ["git", "-C", str(cwd), "status", "--porcelain=v2", "--branch", "-uno"]
    # What is measured must not find the repository locked by us.
    environ = {**environ, "GIT_OPTIONAL_LOCKS": "0"}
    if not any((folder / ".git").exists() for folder in (cwd, *cwd.parents)):
        return {}
    try:
        told = subprocess.run(
            command,
            env=environ,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_GIT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    lines = told.stdout.decode(errors="replace").splitlines()
    heads = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# "))
    dirty = any(not line.startswith("#") for line in lines)
    return {
        "commit": heads.get("branch.oid", ""),
        "branch": heads.get("branch.head", ""),
        "dirty": "yes" if dirty else "no",
    }


def _host() -> dict[str, str]:
    return {
        "name": platform.node(),
        "system": _system(),
        "kernel": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "executable": sys.executable,
        "cpus": str(os.cpu_count() or ""),
        "user": str(os.getuid()) if hasattr(os, "getuid") else "",
    }


def _system() -> str:
    try:
        text = Path("/etc/os-release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.system()
    named = re.search(r'^PRETTY_NAME="?([^"\n]+)', text, re.MULTILINE)
    return named[1] if named else platform.system()


def _versions() -> dict[str, str]:
    found = {}
    for name in (*_LIBRARIES, *FRAMEWORKS):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # noqa: PERF203  # most are absent somewhere
            continue
    return found


SUFFIX: Final = ".frameworks.json"


@dataclass(frozen=True)
class FrameworkUse:
    """One process that imported a framework.

    ``time_s`` is from the first import to the end of the process and ``cpu_s`` the CPU time in it,
    its children's included; both are None of a process that was killed. ``frameworks`` has the
    ``version`` of each, and where it has them ``cuda``, ``cudnn`` and ``hip``.
    """

    pid: int
    imported_ns: int
    time_s: float | None
    cpu_s: float | None
    frameworks: Mapping[str, Mapping[str, str]]


def read_framework_uses(run: Path) -> list[FrameworkUse]:
    """In the order of their imports; a file that cannot be read counts as none."""
    read = map(_read, (run / MARKS).glob(f"*{SUFFIX}"))
    return sorted((use for use in read if use is not None), key=lambda use: use.imported_ns)


def _read(path: Path) -> FrameworkUse | None:
    try:
        return _use(json.loads(read_regular(path)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _use(told: Any) -> FrameworkUse:
    imported_ns, end_ns = int(told["imported_ns"]), told["end_ns"]
    return FrameworkUse(
        pid=int(told["pid"]),
        imported_ns=imported_ns,
        time_s=None if end_ns is None else (int(end_ns) - imported_ns) / NS_PER_S,
        cpu_s=None if told["cpu_s"] is None else float(told["cpu_s"]),
        frameworks={
            str(name): {str(key): str(value) for key, value in parts.items()}
            for name, parts in told["frameworks"].items()
        },
    )


def with_frameworks(run: Path, manifest: Manifest) -> Manifest:
    """The manifest with what the program used; that replaces what stands in our own environment."""
    frameworks = _together(use.frameworks for use in read_framework_uses(run))
    if not frameworks:
        return manifest
    ours = {name: v for name, v in manifest.versions.items() if name not in FRAMEWORKS}
    theirs = {name: parts["version"] for name, parts in frameworks.items()}
    return replace(manifest, frameworks=frameworks, versions={**ours, **theirs})


def _together(
    uses: Iterable[Mapping[str, Mapping[str, str]]],
) -> dict[str, dict[str, str]]:
    """Of several processes; where they differ, all that they have."""
    values: dict[str, dict[str, dict[str, None]]] = {}
    for frameworks in uses:
        for name, parts in frameworks.items():
            for key, value in parts.items():
                values.setdefault(name, {}).setdefault(key, {})[value] = None
    return {
        name: {key: ", ".join(each) for key, each in parts.items()}
        for name, parts in values.items()
        if "version" in parts
    }

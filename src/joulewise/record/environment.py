"""Where a run took place: host, machine, container, versions, git commit, and some variables.

All of it is read from the kernel's files, the environment and package metadata; what the measured
processes report of their frameworks comes from files that they write (``hooks.frameworks``).
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Final, TypedDict

from joulewise.data.codec import decode
from joulewise.data.runs import Container, MachineResources
from joulewise.store.files import read_regular
from joulewise.store.layout import MARKS
from joulewise.store.manifest import Manifest
from joulewise.store.redact import mask
from joulewise.units import NS_PER_S

# Engines name a container by 64 hexadecimal digits, in its cgroup and in the paths of its mounts.
_ID: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_MOUNTED: Final = re.compile(r"containers/([0-9a-f]{64})/")
# Words in the path of a cgroup by which an engine is recognised, the more specific one first.
_ENGINES_BY_CGROUP: Final = {
    "kubepods": "kubernetes",
    "libpod": "podman",
    "docker": "docker",
    "containerd": "containerd",
    "lxc": "lxc",
    "machine.slice/systemd-nspawn": "systemd-nspawn",
}


def detect_container(environ: Mapping[str, str], root: Path = Path("/")) -> Container | None:
    """The innermost container that this process is in; None where there is no sign of one.

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
    podman = dict(re.findall(r'^(\w+)="([^"]*)"', _text(root / "run/.containerenv"), re.MULTILINE))
    return Container(runtime, podman.get("id") or _id(cgroup, root), podman.get("image", ""))


def _runtime(environ: Mapping[str, str], cgroup: str, root: Path) -> str:
    if "KUBERNETES_SERVICE_HOST" in environ:
        return "kubernetes"
    for word, runtime in _ENGINES_BY_CGROUP.items():
        if word in cgroup:
            return runtime
    if (root / "run/.containerenv").exists():
        return "podman"
    if (root / ".dockerenv").exists():
        return "docker"
    # systemd's container interface, which every other engine follows (lxc, systemd-nspawn, …).
    return environ.get("container", "") or _text(root / "run/systemd/container").strip()


def _id(cgroup: str, root: Path) -> str:
    """The id of the innermost container: from the cgroup, or from a mount where that is hidden."""
    if ids := _ID.findall(cgroup):
        return str(ids[-1])
    mounted = _MOUNTED.search(_text(root / "proc/self/mountinfo"))
    return mounted[1] if mounted else ""


def _text(path: Path) -> str:
    """The content of a file; empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


_B_PER_KIB: Final = 1024


def read_machine(root: Path = Path("/")) -> MachineResources:
    """Cores and RAM of this machine, and how much of them this process may use."""
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
    """The CPU quota in cores of every cgroup around this process; the lowest is in force."""
    for folder in _cgroups(root, "cpu"):
        quota_us, _, period_us = _text(folder / "cpu.max").strip().partition(" ")  # version 2
        if not quota_us:
            # Version 1, -1 where there is none.
            quota_us = _text(folder / "cpu.cfs_quota_us").strip()
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
    """The folders of this process's cgroup and of those above it, of either version.

    In a container the path may be the host's, of which only the top is mounted; that is included.
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
        yield from (above for above in (folder, *folder.parents) if above.is_relative_to(top))


_GIT_S: Final = 1.0  # after which git is given up (chosen); a command's end waits for it at most
_LIBRARIES: Final = ("joulewise", "numpy", "pyarrow", "nvidia-ml-py")
# Versions of the measured program's frameworks, where it shares our environment and does not report
# them itself. Only their metadata is read; nothing is imported.
FRAMEWORKS: Final = ("torch", "keras", "tensorflow", "jax", "lightning", "transformers")
# What changes how a training runs. Everything else may hold a secret, and stays out.
_RECORDED_VARIABLES: Final = re.compile(
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
    """The fields of run.json that describe where the run took place."""

    host: Mapping[str, str] = field(default_factory=dict)
    git: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: MachineResources | None = None
    container: Container | None = None


def read_run_environment(cwd: Path | None, environ: Mapping[str, str]) -> RunEnvironment:
    """Read all of it. Never raises, and takes about a second where git is slow."""
    git = git_state(cwd, environ) if cwd else {}
    return RunEnvironment(
        host=_host(),
        git=git,
        environ=recorded_variables(environ),
        versions=_versions(),
        machine=read_machine(),
        container=detect_container(environ),
    )


def recorded_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables on the list; a secret in one of them is masked all the same."""
    return {
        name: mask([value])[0]
        for name, value in sorted(environ.items())
        if _RECORDED_VARIABLES.fullmatch(name)
    }


def git_state(cwd: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The commit and whether files differ from it; empty outside of a repository."""
    command = ["git", "-C", str(cwd), "status", "--porcelain=v2", "--branch", "-uno"]
    # The measured program must not find the repository locked by us.
    environ = {**environ, "GIT_OPTIONAL_LOCKS": "0"}
    if not any((folder / ".git").exists() for folder in (cwd, *cwd.parents)):
        return {}
    try:
        status = subprocess.run(
            command,
            env=environ,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_GIT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    lines = status.stdout.decode(errors="replace").splitlines()
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
    """The name of the distribution, else of the kernel."""
    release = _text(Path("/etc/os-release"))
    name = re.search(r'^PRETTY_NAME="?([^"\n]+)', release, re.MULTILINE)
    return name[1] if name else platform.system()


def _versions() -> dict[str, str]:
    versions = {}
    for name in (*_LIBRARIES, *FRAMEWORKS):
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


_SUFFIX: Final = ".frameworks.json"


@dataclass(frozen=True)
class FrameworkUse:
    """The frameworks that one process imported.

    ``time_s`` is from the first import to the end of the process and ``cpu_s`` the CPU time in it,
    its children's included; both are None for a process that was killed. ``frameworks`` has the
    ``version`` of each, and where it has them ``cuda``, ``cudnn`` and ``hip``.
    """

    pid: int
    imported_ns: int
    time_s: float | None
    cpu_s: float | None
    frameworks: Mapping[str, Mapping[str, str]]


def read_framework_uses(run: Path) -> list[FrameworkUse]:
    """All of a run in the order of their imports; a file that cannot be read is ignored."""
    uses = map(_read_use, (run / MARKS).glob(f"*{_SUFFIX}"))
    return sorted((use for use in uses if use is not None), key=lambda use: use.imported_ns)


class _StoredUse(TypedDict):
    """What a process wrote when it imported a framework, and again at its end."""

    pid: int
    imported_ns: int
    end_ns: int | None
    cpu_s: float | None
    frameworks: dict[str, dict[str, str]]


def _read_use(path: Path) -> FrameworkUse | None:
    try:
        stored = decode(_StoredUse, json.loads(read_regular(path)))
    except (OSError, ValueError):
        return None
    imported_ns, end_ns = stored["imported_ns"], stored["end_ns"]
    time_s = None if end_ns is None else (end_ns - imported_ns) / NS_PER_S
    return FrameworkUse(stored["pid"], imported_ns, time_s, stored["cpu_s"], stored["frameworks"])


def with_frameworks(run: Path, manifest: Manifest) -> Manifest:
    """The manifest with the program's own frameworks, in place of those in our environment."""
    frameworks = _merge_versions(use.frameworks for use in read_framework_uses(run))
    if not frameworks:
        return manifest
    ours = {name: v for name, v in manifest.versions.items() if name not in FRAMEWORKS}
    theirs = {name: parts["version"] for name, parts in frameworks.items()}
    return replace(manifest, frameworks=frameworks, versions={**ours, **theirs})


def _merge_versions(
    uses: Iterable[Mapping[str, Mapping[str, str]]],
) -> dict[str, dict[str, str]]:
    """The versions of several processes; where they differ, all of them, separated by commas."""
    values: dict[str, dict[str, dict[str, None]]] = {}
    for frameworks in uses:
        for name, parts in frameworks.items():
            for key, value in parts.items():
                values.setdefault(name, {}).setdefault(key, {})[value] = None
    return {
        name: {key: ", ".join(versions) for key, versions in parts.items()}
        for name, parts in values.items()
        if "version" in parts
    }

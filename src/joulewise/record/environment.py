"""Where a run took place: host, machine, container, versions, git commit, and some variables."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Final

from joulewise.record.container import Container, detect_container
from joulewise.record.machine import Machine, read_machine
from joulewise.record.secrets import mask

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
class Surroundings:
    host: Mapping[str, str] = field(default_factory=dict)
    git: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: Machine | None = None
    container: Container | None = None


def surroundings(cwd: Path | None, environ: Mapping[str, str]) -> Surroundings:
    """All of it. Never raises, and takes about a second where git is slow."""
    git = git_state(cwd, environ) if cwd else {}
    return Surroundings(
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

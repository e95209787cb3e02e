"""Whether somebody will end everything that a job has started, our guardian included."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from joulewise.command.alive import FIRST_NAMESPACE, parent, pid_namespace
from joulewise.command.state import is_safe, state_folder

EPILOG: Final = "epilog"
_PROC: Final = Path("/proc")
# What each sets for its jobs; Grid Engine's JOB_ID alone may be anybody's.
_JOBS: Final = (
    ("Slurm", "SLURM_JOB_ID"),
    ("PBS", "PBS_JOBID"),
    ("LSF", "LSB_JOBID"),
    ("Flux", "FLUX_JOB_ID"),
    ("OAR", "OAR_JOB_ID"),
    ("Cobalt", "COBALT_JOBID"),
    ("HTCondor", "_CONDOR_JOB_AD"),
)
_GRID_ENGINE: Final = ("JOB_ID", "SGE_JOB_SPOOL_DIR")
_SLURM: Final = re.compile(r"/job_(\d+)(/|$)")
_PODS: Final = re.compile(r"/kubepods(\.slice)?(/|$)|/kubepods-")
_CONTAINER: Final = re.compile(r"/(docker|libpod|cri-containerd)[-/][0-9a-f]{64}")
_LOGIN: Final = re.compile(r"/user\.slice(/|$)|/user@\d+\.service(/|$)")
_SERVICE: Final = re.compile(r".*/([^/]+\.service)(/|$)")
# They leave alone what their jobs and sessions have started.
_LENIENT: Final = {"cron.service", "crond.service", "atd.service", "ssh.service", "sshd.service"}
_STAYS: Final = {"systemd", "init"}  # as process 1: the container is a machine of its own


def scheduler(environ: Mapping[str, str], proc: Path = _PROC) -> str | None:
    """Who ends this process with all of its kin, in words; None in an ordinary login."""
    for name, variable in _JOBS:
        if environ.get(variable):
            return f"{name} (job {Path(environ[variable]).name})"
    if all(environ.get(variable) for variable in _GRID_ENGINE):
        return f"Grid Engine (job {environ['JOB_ID']})"
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return "Kubernetes"
    if "JOULEWISE_SIM" in environ:  # those GPUs end with their container or service themselves
        return None
    return _by_cgroup(proc) or _by_container(proc)


def epilog_is_installed(environ: Mapping[str, str]) -> bool:
    """Whether ``joulewise restore --epilog`` has run on this machine, as it does after each job."""
    folder = state_folder(environ)
    return is_safe(folder) and (folder / EPILOG).exists()


def _by_cgroup(proc: Path) -> str | None:
    """Told by any of the hierarchies; a variable may have been taken away, as by ``sudo``."""
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return None
    for path in (line.split(":", 2)[-1] for line in lines):
        if _PODS.search(path):
            return "Kubernetes"
        job = _SLURM.search(path) if "slurm" in path else None
        if job:
            return f"Slurm (job {job[1]})"
        if _CONTAINER.search(path) and pid_namespace(proc) == FIRST_NAMESPACE:
            return "the container's runtime"  # where no namespace does it, as with --pid=host
        service = None if _LOGIN.search(path) else _SERVICE.match(path)
        if service and service[1] not in _LENIENT:
            return f"systemd ({service[1]})"
    return None


def _by_container(proc: Path) -> str | None:
    """When process 1 of a container ends, the kernel kills the rest at once.

    Whoever was put into one that runs (``docker exec``) does not descend from its process 1, and
    the container goes on after them.
    """
    if pid_namespace(proc) in {"", FIRST_NAMESPACE}:
        return None
    try:
        first = (proc / "1/comm").read_text().strip()
        pid = int((proc / "self").readlink().name)
    except (OSError, ValueError):
        return None
    while pid > 1:
        pid = parent(pid, proc)
    return f"the container's process 1 ({first})" if pid == 1 and first not in _STAYS else None

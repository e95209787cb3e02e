"""Which command gives the right to turn a knob. We only name it: joulewise never calls sudo.

Whether somebody will end everything that a job has started, our guardian included.

Other people on a device, who would be slowed by what we set.
"""

from __future__ import annotations

import grp
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from joulewise.control.holds import LeaseHolder
from joulewise.control.messages import user
from joulewise.data import Knob, Unavailable
from joulewise.devices import Device
from joulewise.devices.device import by_root_or_the_service
from joulewise.errors import HeldError, PermissionDeniedError
from joulewise.process.linux import FIRST_NAMESPACE, parent, pid_namespace
from joulewise.process.state_dir import is_safe, state_folder


def what_gives_it(fix: str, *, is_simulated: bool = False) -> str:
    """``fix`` is what the device says of it.

    That is all that is left for root to do, and in a simulation there are ways of its own.
    """
    if os.geteuid() == 0 or is_simulated:
        return fix
    return by_root_or_the_service()


def not_a_member(path: str) -> PermissionDeniedError:
    """There is a service, whose socket is another group's."""
    try:
        group = _group(Path(path).stat().st_gid)
    except OSError:
        group = "GROUP"
    return PermissionDeniedError(
        f"the service at {path} turns knobs for group {group}, in which you are not",
        f"run `sudo usermod -aG {group} {user(os.geteuid())}`, then log in again",
    )


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return "GROUP"


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


_CUDA: Final = "/dev/nvidia-uvm"  # open in whatever computes, and not in what only looks on


def no_strangers(
    holder: LeaseHolder, device: Device, knob: Knob, _value: float, proc: Path = _PROC
) -> None:
    """Refuses while somebody else uses the device, or may, by what the holder itself tells."""
    _refuse_strangers(holder, device, knob, _environ(holder.pid, proc), proc)


def no_other_owners(
    holder: LeaseHolder, device: Device, knob: Knob, _value: float, proc: Path = _PROC
) -> None:
    """The same where the holder's word is not enough: by the kernel's and the driver's alone."""
    _refuse_strangers(holder, device, knob, {}, proc)


def _refuse_strangers(
    holder: LeaseHolder, device: Device, knob: Knob, environ: Mapping[str, str], proc: Path
) -> None:
    ours = _ours(holder, environ)
    who = _strange_slices(device, environ) or _strangers(device, ours, proc)
    if who:
        raise HeldError(
            f"{device.info.key} {who}, whom another {knob.label} would concern as well",
            "wait until it is yours alone, or insist with --force (force=True)",
        )


def _strangers(device: Device, ours: set[int], proc: Path) -> str:
    told = device.processes()
    if isinstance(told, Unavailable) or not told:
        return ""
    if pid_namespace(proc) not in {"", FIRST_NAMESPACE}:
        # The driver counts processes as the host does, so that their numbers say nothing here.
        more = len(told) - _computing(ours, proc)
        return f"is used by {more} more than are seen in this container" if more > 0 else ""
    for process in told:
        uid = _owner(process.pid, proc)
        if uid is None and _lives(process.pid):  # whose it is, is hidden from us (hidepid)
            return f"is used by pid {process.pid} of somebody else"
        if uid is not None and uid not in ours:
            return f"is used by pid {process.pid} of {user(uid)}"
    return ""


def _strange_slices(device: Device, environ: Mapping[str, str]) -> str:
    """CUDA takes the first instance where none is named."""
    slices = device.info.slices
    mine = set(environ.get("CUDA_VISIBLE_DEVICES", "").split(",")) & set(slices)
    others = len(slices) - max(len(mine), 1)
    return f"has {others} other MIG instances" if others > 0 else ""


def _ours(holder: LeaseHolder, environ: Mapping[str, str]) -> set[int]:
    """Root through sudo is the user who called it, too; only root is taken at its word."""
    caller = environ.get("SUDO_UID", "") if holder.uid == 0 else ""
    return {holder.uid, int(caller)} if caller.isdecimal() else {holder.uid}


def _computing(ours: set[int], proc: Path) -> int:
    pids = (int(entry.name) for entry in proc.iterdir() if entry.name.isdigit())
    return sum(_owner(pid, proc) in ours and _has_open(pid, _CUDA, proc) for pid in pids)


def _has_open(pid: int, path: str, proc: Path) -> bool:
    try:
        return any(str(entry.readlink()) == path for entry in (proc / f"{pid}/fd").iterdir())
    except OSError:
        return False


def _environ(pid: int, proc: Path) -> dict[str, str]:
    try:
        told = (proc / f"{pid}/environ").read_text(errors="replace")
    except OSError:
        return {}
    pairs = (entry.partition("=") for entry in told.split("\0"))
    return {name: value for name, _, value in pairs}


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is not ours
        pass
    return True


def _owner(pid: int, proc: Path) -> int | None:
    """By its status: the folder of a process that has changed its user is root's."""
    try:
        told = (proc / f"{pid}/status").read_text(errors="replace")
    except OSError:
        return None
    uids = (line.split()[1] for line in told.splitlines() if line.startswith("Uid:"))
    return next(map(int, uids), None)

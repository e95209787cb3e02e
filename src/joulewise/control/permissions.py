"""Who may change settings: permissions, schedulers that kill a guardian, other users of a device.

joulewise never calls sudo: errors name the command that gives the right.
"""

from __future__ import annotations

import grp
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from joulewise.control.holds import LeaseHolder
from joulewise.control.messages import user_name
from joulewise.data import ControlKind, Unavailable
from joulewise.devices import Device
from joulewise.devices.device import permission_hint
from joulewise.errors import HeldError, PermissionDeniedError
from joulewise.process.linux import FIRST_NAMESPACE, parent_pid, pid_namespace
from joulewise.process.state_dir import is_safe, state_folder


def permission_fix(fix: str, *, is_simulated: bool = False) -> str:
    """How to get the right to change a setting; ``fix`` is what the device suggests.

    Root and users of a simulation get the device's own fix.
    """
    if os.geteuid() == 0 or is_simulated:
        return fix
    return permission_hint()


def not_a_member_error(path: str) -> PermissionDeniedError:
    """The error where the service's socket belongs to a group that the user is not in."""
    try:
        group = _group_name(Path(path).stat().st_gid)
    except OSError:
        group = "GROUP"
    return PermissionDeniedError(
        f"the service at {path} changes settings for group {group}, and you are not in it",
        f"run `sudo usermod -aG {group} {user_name(os.geteuid())}`, then log in again",
    )


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return "GROUP"


EPILOG: Final = "epilog"
_PROC: Final = Path("/proc")
# The variable that each scheduler sets for its jobs; JOB_ID alone need not be Grid Engine's.
_JOB_VARIABLES: Final = (
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
_LOGIN_SESSION: Final = re.compile(r"/user\.slice(/|$)|/user@\d+\.service(/|$)")
_SERVICE: Final = re.compile(r".*/([^/]+\.service)(/|$)")
# Services that do not kill what their jobs and sessions have started.
_KEEPING_SERVICES: Final = {
    "cron.service",
    "crond.service",
    "atd.service",
    "ssh.service",
    "sshd.service",
}
_INIT_PROGRAMS: Final = {"systemd", "init"}  # as process 1, the container runs like a machine


def scheduler(environ: Mapping[str, str], proc: Path = _PROC) -> str | None:
    """What would kill this process with all that it started, as text; None in a login session."""
    for name, variable in _JOB_VARIABLES:
        if environ.get(variable):
            return f"{name} (job {Path(environ[variable]).name})"
    if all(environ.get(variable) for variable in _GRID_ENGINE):
        return f"Grid Engine (job {environ['JOB_ID']})"
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return "Kubernetes"
    if "JOULEWISE_SIM" in environ:  # simulated GPUs end with their container or service, too
        return None
    return _scheduler_of_cgroup(proc) or _scheduler_of_container(proc)


def is_epilog_installed(environ: Mapping[str, str]) -> bool:
    """Whether ``joulewise restore --epilog`` has run on this machine, as it does after each job."""
    folder = state_folder(environ)
    return is_safe(folder) and (folder / EPILOG).exists()


def _scheduler_of_cgroup(proc: Path) -> str | None:
    """The scheduler by any cgroup hierarchy; ``sudo`` removes the variables that name it."""
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
            return "the container's runtime"  # without a pid namespace, as with --pid=host
        service = None if _LOGIN_SESSION.search(path) else _SERVICE.match(path)
        if service and service[1] not in _KEEPING_SERVICES:
            return f"systemd ({service[1]})"
    return None


def _scheduler_of_container(proc: Path) -> str | None:
    """The container's process 1: when it ends, the kernel kills all others.

    A process that was added to a running container (``docker exec``) does not descend from process
    1, and the container goes on after it.
    """
    if pid_namespace(proc) in {"", FIRST_NAMESPACE}:
        return None
    try:
        first = (proc / "1/comm").read_text().strip()
        pid = int((proc / "self").readlink().name)
    except (OSError, ValueError):
        return None
    while pid > 1:
        pid = parent_pid(pid, proc)
    return (
        f"the container's process 1 ({first})" if pid == 1 and first not in _INIT_PROGRAMS else None
    )


_CUDA: Final = "/dev/nvidia-uvm"  # open in programs that compute, not in those that only monitor


def refuse_other_users(
    holder: LeaseHolder, device: Device, control: ControlKind, _value: float, proc: Path = _PROC
) -> None:
    """Raise HeldError while other users use the device; the holder's environment is trusted."""
    _refuse_users(holder, device, control, _read_environ(holder.pid, proc), proc)


def refuse_other_owners(
    holder: LeaseHolder, device: Device, control: ControlKind, _value: float, proc: Path = _PROC
) -> None:
    """The same by what the kernel and the driver report, without trusting the holder."""
    _refuse_users(holder, device, control, {}, proc)


def _refuse_users(
    holder: LeaseHolder,
    device: Device,
    control: ControlKind,
    environ: Mapping[str, str],
    proc: Path,
) -> None:
    ours = _own_uids(holder, environ)
    who = _describe_other_instances(device, environ) or _describe_other_users(device, ours, proc)
    if who:
        raise HeldError(
            f"{device.info.key} {who}, whom a new {control.label} would affect as well",
            "wait until nobody else uses it, or use --force (force=True)",
        )


def _describe_other_users(device: Device, ours: set[int], proc: Path) -> str:
    processes = device.processes()
    if isinstance(processes, Unavailable) or not processes:
        return ""
    if pid_namespace(proc) not in {"", FIRST_NAMESPACE}:
        # The driver reports pids of the host, which mean nothing in this container.
        more = len(processes) - _count_cuda_processes(ours, proc)
        processes_text = "1 process" if more == 1 else f"{more} processes"
        return f"is used by {processes_text} outside this container" if more > 0 else ""
    for process in processes:
        uid = _read_uid(process.pid, proc)
        if uid is None and _is_running(process.pid):  # hidden by the mount option hidepid
            return f"is used by pid {process.pid} of another user"
        if uid is not None and uid not in ours:
            return f"is used by pid {process.pid} of user {user_name(uid)}"
    return ""


def _describe_other_instances(device: Device, environ: Mapping[str, str]) -> str:
    """CUDA uses the first MIG instance where CUDA_VISIBLE_DEVICES names none."""
    slices = device.info.slices
    mine = set(environ.get("CUDA_VISIBLE_DEVICES", "").split(",")) & set(slices)
    others = len(slices) - max(len(mine), 1)
    return f"has {others} other MIG instances" if others > 0 else ""


def _own_uids(holder: LeaseHolder, environ: Mapping[str, str]) -> set[int]:
    """The holder's user; for root through sudo also the user who called it."""
    caller = environ.get("SUDO_UID", "") if holder.uid == 0 else ""
    return {holder.uid, int(caller)} if caller.isdecimal() else {holder.uid}


def _count_cuda_processes(ours: set[int], proc: Path) -> int:
    pids = (int(entry.name) for entry in proc.iterdir() if entry.name.isdigit())
    return sum(_read_uid(pid, proc) in ours and _has_open(pid, _CUDA, proc) for pid in pids)


def _has_open(pid: int, path: str, proc: Path) -> bool:
    try:
        return any(str(entry.readlink()) == path for entry in (proc / f"{pid}/fd").iterdir())
    except OSError:
        return False


def _read_environ(pid: int, proc: Path) -> dict[str, str]:
    try:
        block = (proc / f"{pid}/environ").read_text(errors="replace")
    except OSError:
        return {}
    pairs = (entry.partition("=") for entry in block.split("\0"))
    return {name: value for name, _, value in pairs}


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is not ours
        pass
    return True


def _read_uid(pid: int, proc: Path) -> int | None:
    """Real uid from /proc/PID/status: the folder itself may belong to root after setuid."""
    try:
        status = (proc / f"{pid}/status").read_text(errors="replace")
    except OSError:
        return None
    uids = (line.split()[1] for line in status.splitlines() if line.startswith("Uid:"))
    return next(map(int, uids), None)

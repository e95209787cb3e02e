"""Whether a scheduler will end everything that a job has started, our guardian included."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from joulewise.command.state import state_folder

EPILOG: Final = "epilog"
_CGROUP: Final = Path("/proc/self/cgroup")
_LOGIN: Final = re.compile(r"/user\.slice/|/user@\d+\.service/|/session-[^/]+\.scope")
_SERVICE: Final = re.compile(r"/([^/]+\.service)(/|$)")


def scheduler(environ: Mapping[str, str], cgroup: Path = _CGROUP) -> str | None:
    """Who ends this process with all of its kin, in words; None in an ordinary login."""
    if environ.get("SLURM_JOB_ID"):
        return f"Slurm (job {environ['SLURM_JOB_ID']})"
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return "Kubernetes"
    try:
        paths = [line.rpartition(":")[2] for line in cgroup.read_text().splitlines()]
    except OSError:
        return None
    for path in paths:
        found = None if _LOGIN.search(path) else _SERVICE.search(path)
        if found:
            return f"systemd ({found[1]})"
    return None


def epilog_is_installed(environ: Mapping[str, str]) -> bool:
    """Whether ``joulewise restore --epilog`` has run on this machine, as it does after each job."""
    return (state_folder(environ) / EPILOG).exists()

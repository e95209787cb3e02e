"""Which process of a distributed job this is, by the variables of its launcher."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from zlib import crc32

# Rank, world size, local rank, as launchers name them. SLURM's come last: a single process that
# was started inside an allocation has them too.
LAUNCHERS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("LOCAL_RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)
# Variables that the ranks of one job share, and that differ between jobs.
JOB = (
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "OMPI_MCA_ess_base_jobid",
    "PMIX_NAMESPACE",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
)


def find_rank(environ: Mapping[str, str]) -> tuple[int, int, int, int]:
    """Rank, world size, local rank and a hash of the job; (0, 1, 0, 0) of a single process."""
    for names in LAUNCHERS:
        rank, size, local = (_number(environ.get(name)) for name in names)
        if rank is not None and size is not None and 0 <= rank < size and size > 1:
            return rank, size, rank if local is None else local, _hash_job(environ)
    rank, size = _ask_torch()
    return rank, size, rank, _hash_job(environ) if size > 1 else 0


def _hash_job(environ: Mapping[str, str]) -> int:
    return crc32("\0".join(environ.get(name, "") for name in JOB).encode("utf-8", "replace"))


def _ask_torch() -> tuple[int, int]:
    # Processes that the program starts itself (spawn) know their rank from the call alone.
    distributed = sys.modules.get("torch.distributed")
    if distributed is None:
        return 0, 1
    try:
        if not (distributed.is_available() and distributed.is_initialized()):
            return 0, 1
        return int(distributed.get_rank()), int(distributed.get_world_size())
    except Exception:  # noqa: BLE001 - a halfway imported torch fails in its own ways
        return 0, 1


def _number(text: str | None) -> int | None:
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None

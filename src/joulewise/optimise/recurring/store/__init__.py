"""The database of recurring jobs: a SQLite file, or PostgreSQL for a team.

- ``job_store``: what a job does with it: define, ask, renew, tell, show, forget
- ``policy_calls``: a policy restored, or made again from the tries; its errors
- ``queries``: its statements; ``rows``: data classes as rows, and back
- ``tables``: the schema; ``migrations/`` makes it, and updates older ones
- ``database``: connections, transactions that are repeated, errors in plain words
- ``address``: which database is meant, and how it may be shown

SQLAlchemy is imported when a store is opened, and not before.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from joulewise.errors import JoulewiseError
from joulewise.optimise.recurring.store.address import (
    JOBS_FILE,
    JOBS_VARIABLE,
    job_store_address,
    redact_address,
)

if TYPE_CHECKING:
    from joulewise.optimise.recurring.store.job_store import JobStore

__all__ = ["JOBS_FILE", "JOBS_VARIABLE", "job_store_address", "open_job_store", "redact_address"]

_LIBRARIES: Final = {"sqlalchemy", "alembic", "psycopg"}


def open_job_store(
    address: str | Path, *, for_writing: bool = True, warn: Callable[[str], None] | None = None
) -> JobStore:
    """Open the store at a path or URL; see ``JobStore.open``. Says what to install, if need be."""
    try:
        from joulewise.optimise.recurring.store.job_store import JobStore

        return JobStore.open(address, for_writing=for_writing, warn=warn)
    except OSError as error:
        reason = error.strerror or str(error)
        raise JoulewiseError(
            f"the job store {redact_address(address)} cannot be opened: {reason}",
            "name another by --jobs, or a --store that you may write to",
        ) from None
    except ImportError as error:
        # psycopg raises one without a name where libpq is missing, which psycopg[binary] brings.
        library = (error.name or "psycopg").partition(".")[0]
        if library not in _LIBRARIES:
            raise
        raise JoulewiseError(
            f"recurring jobs need {library}", "pip install 'joulewise[jobs]'"
        ) from None

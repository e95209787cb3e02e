"""Which guardian to ask: one of our own, or the machine's service."""

from __future__ import annotations

import os
from collections.abc import Mapping

from joulewise.control.client import Client
from joulewise.control.scheduler import epilog_is_installed, scheduler
from joulewise.errors import PermissionDeniedError


def connect(environ: Mapping[str, str]) -> Client:
    """A line to whoever may turn knobs, and will be there to turn them back."""
    ruled_by = scheduler(environ)
    alone = ruled_by is None or epilog_is_installed(environ)
    if os.geteuid() == 0 and alone:
        return Client.of_our_own(environ)
    service = Client.of_the_service(environ)
    if service:
        return service
    if ruled_by and not alone:
        raise PermissionDeniedError(
            f"{ruled_by} would end the guardian of the knobs together with the job, and leave them",
            "have `joulewise guard` run as a service on this node, or `joulewise restore --epilog` "
            "in its epilog",
        )
    # The device may still be ours to turn: it knows, and says what gives the right.
    return Client.of_our_own(environ)

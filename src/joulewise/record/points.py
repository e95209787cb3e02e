"""Moments at which a test may have this process die, as a power cut would have it."""

from __future__ import annotations

import os
import signal
from typing import Final

_VARIABLE: Final = "JOULEWISE_TEST_KILL_AT"


def point(name: str) -> None:
    """Kill this process here if ``$JOULEWISE_TEST_KILL_AT`` names this point.

    ``name:3`` means the third time that it is passed.
    """
    global _passed  # noqa: PLW0603  # one process dies once
    wanted, _, times = os.environ.get(_VARIABLE, "").partition(":")
    if wanted != name:
        return
    _passed += 1
    if _passed >= int(times or 1):
        os.kill(os.getpid(), signal.SIGKILL)


_passed = 0

"""Moments at which a test may have this process stopped or dead, as a power cut would have it."""

from __future__ import annotations

import os
import signal
from typing import Final

_VARIABLE: Final = "JOULEWISE_TEST_KILL_AT"


def point(name: str) -> None:
    """Die here if ``$JOULEWISE_TEST_KILL_AT`` names this point.

    ``name:3`` means the third time that it is passed; ``name:3:STOP`` sends another signal.
    """
    global _passed  # noqa: PLW0603  # one process dies once
    wanted, *rest = os.environ.get(_VARIABLE, "").split(":")
    if wanted != name:
        return
    _passed += 1
    if _passed == int(rest[0] if rest else 1):
        os.kill(os.getpid(), signal.Signals[f"SIG{rest[1] if len(rest) > 1 else 'KILL'}"])


_passed = 0

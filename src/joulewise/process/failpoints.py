"""Places at which a test can kill or stop this process, as a power cut would."""

from __future__ import annotations

import os
import signal
from typing import Final

_VARIABLE: Final = "JOULEWISE_TEST_KILL_AT"


def failpoint(name: str) -> None:
    """Kill this process if ``$JOULEWISE_TEST_KILL_AT`` names this point; otherwise do nothing.

    ``name:3`` means the third time that the point is passed; ``name:3:STOP`` sends SIGSTOP.
    """
    global _passed  # noqa: PLW0603  # one process dies once
    wanted, *rest = os.environ.get(_VARIABLE, "").split(":")
    if wanted != name:
        return
    _passed += 1
    if _passed == int(rest[0] if rest else 1):
        os.kill(os.getpid(), signal.Signals[f"SIG{rest[1] if len(rest) > 1 else 'KILL'}"])


_passed = 0

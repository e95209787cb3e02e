"""A process of our group that does nothing: what it got too, the whole group has got."""

from __future__ import annotations

import re
import select
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

from joulewise.command import linux

# Job managers and timeout(1) signal one process after the other.
_GRACE_S: Final = 0.05
_PENDING: Final = re.compile(r"^ShdPnd:\s*(\w+)$", re.MULTILINE)


class Witness:
    """Signals that are blocked when it starts stay with it, where they can be looked up.

    Whether a signal was sent to us or to all of our group is told nowhere else. Where there is no
    witness, every signal counts as sent to us.
    """

    def __init__(self) -> None:
        self._process = _start()

    def await_others(self) -> None:
        """Until whoever signals our group has signalled all of it."""
        if self._process is not None:
            select.select((), (), (), _GRACE_S)

    def pending(self) -> int:
        """The signals it got since it began, one bit each."""
        if self._process is None:
            return 0
        try:
            found = _PENDING.search(Path(f"/proc/{self._process.pid}/status").read_text())
        except OSError:
            return 0
        return int(found[1], 16) if found else 0

    def begin_anew(self) -> None:
        """What it got would be taken for what comes next; what comes now, nobody witnesses."""
        self.close()
        self._process = _start()

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _start() -> subprocess.Popen[bytes] | None:
    """It reads a pipe that ends with us, whatever we end by."""
    with suppress(OSError):
        if linux.HERE:
            return subprocess.Popen(
                ["cat"],  # noqa: S607  # wherever it is
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
    return None

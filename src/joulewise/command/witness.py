"""A process of our group that does nothing: what it got too, the whole group has got."""

from __future__ import annotations

import os
import re
import select
import subprocess
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

from joulewise.command import linux

_FOR_EVER_S: Final = "2147483647"
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

    def got(self, numbers: Collection[int]) -> set[int]:
        """Which of the signals that came to us just now came to it as well; told once."""
        if self._process is None:
            return set()
        select.select((), (), (), _GRACE_S)
        pending = _pending(self._process.pid)
        got = {number for number in numbers if pending >> number - 1 & 1}
        if got:
            self.close()
            self._process = _start()
        return got

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _start() -> subprocess.Popen[bytes] | None:
    parent = os.getpid()
    with suppress(OSError, subprocess.SubprocessError):
        if linux.HERE:
            return subprocess.Popen(
                ["sleep", _FOR_EVER_S],  # noqa: S607  # wherever it is
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                preexec_fn=lambda: linux.die_with_parent(parent),  # noqa: PLW1509  # one thread
            )
    return None


def _pending(pid: int) -> int:
    """The signals that wait for a process, one bit each."""
    try:
        found = _PENDING.search(Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return int(found[1], 16) if found else 0

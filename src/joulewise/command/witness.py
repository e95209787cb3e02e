"""A process of our group that does nothing: what it got too, the whole group has got."""

from __future__ import annotations

import re
import select
import signal
import subprocess
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

from joulewise.command import linux

# Job managers and timeout(1) signal one process after the other, and some send two signals in a
# row (SIGCONT and SIGTERM): all of that has come after this time. Doubled, a command would miss
# more of the signals that somebody repeats: those that come meanwhile are one.
_GRACE_S: Final = 0.05
# On a busy machine more than that passes between two processes. A command that is to end would get
# the signal twice, which many take for "at once": for these alone, what is missing is waited for.
# Chosen: half as long, it would happen now and then; doubled, whoever stops a job would notice.
_ENDING: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
_ENDING_GRACE_S: Final = 0.25
_LOOK_S: Final = 0.01
_PENDING: Final = re.compile(r"^ShdPnd:\s*(\w+)$", re.MULTILINE)


class Witness:
    """Signals that are blocked when it starts stay with it, where they can be looked up.

    Whether a signal was sent to us or to all of our group is told nowhere else. Where there is no
    witness, every signal counts as sent to us.
    """

    def __init__(self) -> None:
        self._process = _start()

    def await_others(self, numbers: Collection[int]) -> int:
        """Wait for whoever signals our group to signal all of it; return what was witnessed.

        ``numbers`` are those that came to us; none, where all are known to have gone to the group.
        """
        if not numbers or self._process is None:
            return self.pending()
        select.select((), (), (), _GRACE_S)
        ending = sum(1 << number - 1 for number in numbers if number in _ENDING)
        for _ in range(round((_ENDING_GRACE_S - _GRACE_S) / _LOOK_S)):
            if self.pending() & ending == ending:
                break
            select.select((), (), (), _LOOK_S)
        return self.pending()

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

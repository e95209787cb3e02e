"""A process of our group that does nothing: what it got too, the whole group has got."""

from __future__ import annotations

import re
import select
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from joulewise.command import linux

# Job managers and timeout(1) signal one process after the other; on a busy machine tens of
# milliseconds pass between two of them. Chosen: half as long, a loaded machine's job would now and
# then get a signal twice; twice as long, somebody who stops a job would notice.
_GRACE_S: Final = 0.25
_LOOK_S: Final = 0.01
_PENDING: Final = re.compile(r"^ShdPnd:\s*(\w+)$", re.MULTILINE)


class Witness:
    """Signals that are blocked when it starts stay with it, where they can be looked up.

    Whether a signal was sent to us or to all of our group is told nowhere else. Where there is no
    witness, every signal counts as sent to us.
    """

    def __init__(self) -> None:
        self._process = _start()

    def await_others(self, numbers: Iterable[int]) -> int:
        """Wait for whoever signals our group to signal all of it; return what was witnessed.

        That is over as soon as the witness has all of ``numbers``: the command has them as well,
        or is about to get them.
        """
        wanted = sum(1 << number - 1 for number in set(numbers))
        for _ in range(round(_GRACE_S / _LOOK_S) if self._process is not None else 0):
            if self.pending() & wanted == wanted:
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

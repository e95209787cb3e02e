"""Lines to stderr: wrapped in a terminal, whole for whatever else reads them."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Final

_WHO: Final = "joulewise: "
_WIDTH: Final = 80  # of a terminal that does not tell


def say(line: str, hint: str = "") -> None:
    """If nobody is there any more, whoever says it goes on all the same."""
    if sys.stderr is None:
        return
    from joulewise.report.figures import fitting, hanging

    with suppress(OSError, ValueError):
        columns = _columns() if sys.stderr.isatty() else None
        said = hanging(fitting(line, sys.stderr.encoding), _WHO, columns)
        if hint:
            said += hanging(fitting(hint, sys.stderr.encoding), "  ", columns)
        sys.stderr.write(said)
        sys.stderr.flush()


def _columns() -> int:
    return os.get_terminal_size(sys.stderr.fileno()).columns or _WIDTH

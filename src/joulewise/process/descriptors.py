"""Keeps file descriptors 0 to 2 for the command, whether they are open or closed."""

from __future__ import annotations

import os
from typing import Final

STANDARD: Final = (0, 1, 2)  # stdin, stdout and stderr (POSIX)


def reserve_standard_descriptors() -> None:
    """Keep files that this process opens from taking the number of a closed stdin or stdout.

    The placeholder (/dev/null) is closed when a command starts, so that the command finds closed
    what we found closed.
    """
    descriptor = os.open(os.devnull, os.O_RDWR)
    while descriptor in STANDARD:  # the lowest that is free is taken
        descriptor = os.open(os.devnull, os.O_RDWR)
    os.close(descriptor)

"""Descriptors 0 to 2, which are the command's, whether they are open or closed."""

from __future__ import annotations

import os
from typing import Final

STANDARD: Final = (0, 1, 2)


def reserve_standard_descriptors() -> None:
    """Keep what this process opens from taking the place of a closed stdin, stdout or stderr.

    What stands there instead is closed when a command is started, so that the command finds closed
    what we found closed.
    """
    descriptor = os.open(os.devnull, os.O_RDWR)
    while descriptor in STANDARD:  # the lowest that is free is taken
        descriptor = os.open(os.devnull, os.O_RDWR)
    os.close(descriptor)

"""Where tables are drawn: on a terminal, or into a file or a pipe, which have no width."""

from __future__ import annotations

import os
import re
from typing import IO, Any, Final, cast

from rich.console import Console

_NO_WIDTH: Final = 10_000


class Screen(Console):
    """Wraps and pads for a terminal only."""

    def __init__(self, stream: IO[str]) -> None:
        piped = not stream.isatty()
        super().__init__(
            file=cast("IO[str]", _Unpadded(stream)) if piped else stream,
            width=_NO_WIDTH if piped and "COLUMNS" not in os.environ else None,
            highlight=False,
            markup=False,
            emoji=False,
        )


class _Unpadded:
    """A stream whose lines end where their last word does."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(re.sub(r" +$", "", text, flags=re.MULTILINE))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

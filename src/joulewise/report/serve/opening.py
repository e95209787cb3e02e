"""Having the browser open an address that the list of processes must not show."""

from __future__ import annotations

import os
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path


@contextmanager
def in_browser(url: str, *, is_wanted: bool) -> Iterator[None]:
    """By way of a file that only its owner can read, and that lasts as long as the block."""
    if not is_wanted:
        yield
        return
    descriptor, name = tempfile.mkstemp(".html", "joulewise-")
    path = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(f'<meta http-equiv="refresh" content="0;url={escape(url)}">\n')
        webbrowser.open(path.as_uri())
        yield
    finally:
        path.unlink(missing_ok=True)

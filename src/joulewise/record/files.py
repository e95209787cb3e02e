"""Files that are replaced as a whole, and kept through a power cut."""

from __future__ import annotations

import os
from pathlib import Path

from joulewise.record.points import point


def replace_file(path: Path, text: str) -> None:
    """Put ``text`` in place of what is there; a reader meanwhile finds the one or the other."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        point(f"before-rename-{path.name}")
        part.replace(path)
        point(f"after-rename-{path.name}")
    except OSError:
        part.unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Have a file's content, or a folder's names, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

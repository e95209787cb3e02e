"""Figures in two steps: what to show (tables), and how it is drawn (Vega-Lite, by Altair)."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def _import_altair_without_home() -> None:
    """Import Altair where the user has no home folder, as in many containers.

    Altair asks for the home folder once, when it is imported (``altair/datasets/_cache.py``, for a
    cache that joulewise does not use), and the import fails where there is none. For that moment
    ``HOME`` is a folder that does not exist. Where there is a home, nothing is imported here.
    """
    try:
        Path.home()
    except RuntimeError:
        before = os.environ.get("HOME")
        os.environ["HOME"] = "/nonexistent"  # what Debian calls the home of users without one
        try:
            with suppress(ModuleNotFoundError):  # whoever needs it says how to install it
                import altair as alt  # noqa: F401
        finally:
            os.environ.pop("HOME")
            if before is not None:
                os.environ["HOME"] = before


_import_altair_without_home()

"""The JavaScript that draws figures in a browser, made once and kept."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Final

from joulewise.errors import JoulewiseError
from joulewise.record.files import replace_file

# Last, of a user that only a container's runtime knows of: there is no home.
_NOT_KEPT: Final = (OSError, UnicodeDecodeError, RuntimeError)


def converter() -> ModuleType:
    """vl-convert, which has a JavaScript engine and Vega in it."""
    try:
        with any_home():
            import altair as alt  # noqa: F401  # charts are written in its classes
        import vl_convert
    except ModuleNotFoundError:
        raise JoulewiseError(
            "figures need altair and vl-convert, which are not installed",
            "pip install 'joulewise[report]'",
        ) from None
    return vl_convert


@contextmanager
def any_home() -> Iterator[None]:
    """Set $HOME for a user who has none: altair looks it up on import, and fails without."""
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = "/nonexistent"  # as Debian has it; altair makes nothing there
        try:
            yield
        finally:
            del os.environ["HOME"]
    else:
        yield


@cache
def bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed for a ``<script>``, where ``vegaEmbed`` calls them.

    To make it takes two seconds: it is kept in the user's cache folder, if there is one.
    """
    making = converter()
    language = vega_lite()
    name = f"vega-{version('vl-convert-python')}-{language}.js"
    with suppress(*_NOT_KEPT):
        if known := (_folder() / name).read_text(encoding="utf-8"):
            return known
    made = making.javascript_bundle("window.vegaEmbed = vegaEmbed;", language)
    made = re.sub(r"</(?=script)", r"<\\/", made, flags=re.IGNORECASE)  # would end the element
    with suppress(*_NOT_KEPT):
        _folder().mkdir(parents=True, exist_ok=True)
        replace_file(_folder() / name, made, durable=False)
    return made


def vega_lite() -> str:
    """The version of Vega-Lite that figures are written for, as ``v6.4``."""
    import altair as alt

    return ".".join(alt.SCHEMA_VERSION.split(".")[:2])


def _folder() -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The specification says to ignore a path that is not absolute.
    return (home if home.is_absolute() else Path("~/.cache").expanduser()) / "joulewise"

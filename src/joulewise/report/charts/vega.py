"""The libraries that draw: Altair writes Vega-Lite, vl-convert renders it, Vega runs in a browser.

They come with the extra ``report`` and take about a second to load. Modules that draw take ``alt``
from here in place of ``import altair as alt``, so that nothing is imported before it is used.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from joulewise.errors import JoulewiseError
from joulewise.store.files import replace_file

__all__ = ["alt", "javascript_bundle", "load_altair", "load_converter", "vega_lite_version"]

# What reading or writing the cache may raise; RuntimeError where the user has no home folder.
_CACHE_ERRORS: Final = (OSError, UnicodeDecodeError, RuntimeError)


def load_altair() -> ModuleType:
    """Import Altair, also where the user has no home folder, as in many containers.

    Altair looks up the home folder when it is imported (``altair/datasets/_cache.py``, for a cache
    that joulewise does not use) and fails where there is none. For that moment ``HOME`` is a folder
    that does not exist.
    """
    if altair := sys.modules.get("altair"):
        return altair
    try:
        Path.home()
    except RuntimeError:
        before = os.environ.get("HOME")
        os.environ["HOME"] = "/nonexistent"  # what Debian calls the home of users without one
        try:
            return importlib.import_module("altair")
        finally:
            del os.environ["HOME"]
            if before is not None:
                os.environ["HOME"] = before
    return importlib.import_module("altair")


if TYPE_CHECKING:
    import altair as alt
else:

    class _LazyAltair:
        """Stands for the module ``altair``, which is imported at the first use of a name in it."""

        def __getattr__(self, name: str) -> Any:
            return getattr(load_altair(), name)

    alt = _LazyAltair()


def load_converter() -> ModuleType:
    """Import vl-convert, which contains a JavaScript engine and Vega.

    Raises JoulewiseError with the install command where the extra ``report`` is missing.
    """
    try:
        load_altair()
        return importlib.import_module("vl_convert")
    except ModuleNotFoundError:
        raise JoulewiseError(
            "figures need altair and vl-convert, which are not installed",
            "pip install 'joulewise[report]'",
        ) from None


def vega_lite_version() -> str:
    """The version of Vega-Lite that Altair writes, such as ``v6.4``."""
    return ".".join(alt.SCHEMA_VERSION.split(".")[:2])


@cache
def javascript_bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed for a ``<script>`` element, which then has ``vegaEmbed``.

    Building it takes two seconds, so it is cached in the user's cache folder where there is one.
    """
    converter, language = load_converter(), vega_lite_version()
    name = f"vega-{version('vl-convert-python')}-{language}.js"
    with suppress(*_CACHE_ERRORS):
        if cached := (_cache_folder() / name).read_text(encoding="utf-8"):
            return cached
    script = converter.javascript_bundle("window.vegaEmbed = vegaEmbed;", language)
    # An end tag in a string of the script would end the element that it stands in.
    script = re.sub(r"</(?=script)", r"<\\/", script, flags=re.IGNORECASE)
    with suppress(*_CACHE_ERRORS):
        _cache_folder().mkdir(parents=True, exist_ok=True)
        replace_file(_cache_folder() / name, script, durable=False)
    return str(script)


def _cache_folder() -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification says to ignore a path that is not absolute.
    return (home if home.is_absolute() else Path("~/.cache").expanduser()) / "joulewise"

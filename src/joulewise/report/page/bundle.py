"""The JavaScript that draws figures: Vega, Vega-Lite and Vega-Embed out of vl-convert, no network.

Putting it together takes two seconds, so it is kept in the user's cache.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Final

from joulewise.record.files import replace_file

_ALL_WE_CALL: Final = "window.vegaEmbed = vegaEmbed;"


def bundle() -> str:
    """Fit for a ``<script>``; of the Vega-Lite for which Altair writes."""
    kept = _cache() / f"vega-{version('vl-convert-python')}-{_vega_lite()}.js"
    with suppress(OSError, UnicodeDecodeError):
        return kept.read_text(encoding="utf-8")
    import vl_convert

    made = vl_convert.javascript_bundle(_ALL_WE_CALL, _vega_lite())
    made = re.sub(r"</(?=script)", r"<\\/", made, flags=re.IGNORECASE)  # would end ours
    with suppress(OSError):  # a home that cannot be written costs time, and nothing else
        kept.parent.mkdir(parents=True, exist_ok=True)
        replace_file(kept, made, durable=False)
    return made


def _vega_lite() -> str:
    """As in "6.4"."""
    import altair as alt

    return alt.SCHEMA_VERSION.lstrip("v").rpartition(".")[0]


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME", "")
    # Of no use to anybody if it is relative, says the specification.
    base = Path(home) if home.startswith("/") else Path("~/.cache").expanduser()
    return base / "joulewise"

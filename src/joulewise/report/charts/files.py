"""Write a figure to a file, in the format that its name ends in; nothing is downloaded.

vl-convert, of the extra ``report``, renders Vega-Lite; Vega draws it in a browser.
"""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from html import escape
from importlib.metadata import version
from pathlib import Path
from textwrap import wrap
from types import ModuleType
from typing import Any, Final

from joulewise.data.codec import encode
from joulewise.errors import JoulewiseError, UsageError
from joulewise.report.charts.chart import Chart, alt, load_altair
from joulewise.report.charts.theme import (
    COLUMN_MM,
    POINTS_PER_MM,
    Spec,
    Theme,
    apply_theme,
    theme_config,
)
from joulewise.report.export import write_error
from joulewise.report.tables import as_csv
from joulewise.store.files import UNENCODABLE, replace_file

_SCREEN_WIDTH_PX: Final = 680.0  # chosen: about the width of text in a page
_SCREEN_SCALE, _PRINT_SCALE = 2.0, 600 / 72  # pixels of a PNG per point: high-density, 600 dpi
# What reading or writing the cache may raise; RuntimeError where the user has no home folder.
_CACHE_ERRORS: Final = (OSError, UnicodeDecodeError, RuntimeError)
_TITLE_LETTERS: Final = 80  # in one line of a title, as many as fit the width above


def write_chart(
    chart: Chart, path: Path, theme: Theme = "light", *, width_mm: float = COLUMN_MM
) -> None:
    """Write a chart as .svg .pdf .png .html .json (Vega-Lite) or .csv, by the suffix of ``path``.

    With the theme ``print`` it is ``width_mm`` wide and has no title, since a paper has captions.
    Its provenance, such as that a GPU is simulated, is in every format. Raises UsageError for
    another suffix, JoulewiseError where the file cannot be written.
    """
    convert = FORMATS.get(path.suffix.lower())
    if convert is None:
        raise UsageError(
            f"{path.name} has no suffix of a figure", f"use one of: {' '.join(FORMATS)}"
        )
    content = convert(chart, theme, width_mm)
    try:
        path.write_bytes(
            content if isinstance(content, bytes) else content.encode(errors=UNENCODABLE)
        )
    except OSError as error:
        raise write_error(path, error, "name a folder that can be written to") from None


def _svg(chart: Chart, theme: Theme, width_mm: float) -> str:
    svg: str = _convert("svg", chart, theme, width_mm)
    head, rest = svg.split(">", 1)
    if theme == "print":  # a number without a unit is a pixel in SVG, three quarters of a point
        head = head.replace('" height="', 'pt" height="').replace('" viewBox', 'pt" viewBox')
    text = f"<title>{escape(chart.title)}</title><desc>{escape(chart.caption)}</desc>"
    return f'{head} role="img">{text}{rest}'


def _pdf(chart: Chart, theme: Theme, width_mm: float) -> bytes:
    return bytes(_convert("pdf", chart, theme, width_mm))


def _png(chart: Chart, theme: Theme, width_mm: float) -> bytes:
    scale = _PRINT_SCALE if theme == "print" else _SCREEN_SCALE
    return bytes(_convert("png", chart, theme, width_mm, scale=scale, ppi=72))


def _html(chart: Chart, theme: Theme, _width_mm: float) -> str:
    """A page with the figure as wide as its window, dark where the reader's system is."""
    spec = apply_theme(_spec(chart), theme)
    return _PAGE.format(
        title=escape(chart.title),
        description=escape(chart.caption),
        bundle=javascript_bundle(),
        spec=_json_for_script(spec),
        dark=_json_for_script(theme_config("dark")),
    )


def _json_for_script(spec: Spec) -> str:
    """JSON that cannot end the ``<script>`` element that it stands in."""
    return json.dumps(spec, separators=(",", ":")).replace("<", "\\u003c")


def _json(chart: Chart, theme: Theme, width_mm: float) -> str:
    return json.dumps(_sized_spec(chart, theme, width_mm), indent=1, ensure_ascii=False)


def _csv(chart: Chart, _theme: Theme, _width_mm: float) -> str:
    return as_csv(chart.table)


def _convert(form: str, chart: Chart, theme: Theme, width_mm: float, **options: float) -> Any:
    convert = getattr(load_converter(), f"vegalite_to_{form}")
    spec = _sized_spec(chart, theme, width_mm)
    return convert(spec, vl_version=vega_lite_version(), **options)


def _sized_spec(chart: Chart, theme: Theme, width_mm: float) -> Spec:
    spec = _spec(chart)
    if theme == "print":
        return apply_theme(spec, theme, round(width_mm * POINTS_PER_MM, 1))
    subtitle = {"subtitle": chart.provenance} if chart.provenance else {}
    title = {"text": wrap(chart.title, _TITLE_LETTERS), **subtitle}
    return {**apply_theme(spec, theme, _SCREEN_WIDTH_PX), "title": title}


def _spec(chart: Chart) -> Spec:
    load_converter()  # raises with the install command where a library is missing
    spec: Spec = encode(chart.spec())
    return spec


FORMATS: Final[Mapping[str, Callable[[Chart, Theme, float], str | bytes]]] = {
    ".svg": _svg,
    ".pdf": _pdf,
    ".png": _png,
    ".html": _html,
    ".json": _json,
    ".csv": _csv,
}
"""How to convert a figure, by the suffix of the file."""

_PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline';
 style-src 'unsafe-inline'; img-src data: blob:">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
body {{ max-width: 60rem; margin: 1rem auto; padding: 0 1rem; font: 1rem/1.5 sans-serif }}
#figure {{ width: 100% }}
</style>
<h1>{title}</h1>
<div id="figure"></div>
<p>{description}</p>
<script>{bundle}</script>
<script>
const spec = {spec}, dark = matchMedia("(prefers-color-scheme: dark)");
const draw = () => vegaEmbed("#figure", dark.matches ? {{...spec, config: {dark}}} : spec,
  {{ast: true, renderer: "svg", actions: {{export: true, source: false, editor: false}}}});
dark.addEventListener("change", draw);
draw();
</script>
</html>
"""


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

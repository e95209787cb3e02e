"""A figure as a file: one definition, every format, no network."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Any, Final

from joulewise.data.codec import finite
from joulewise.errors import UsageError
from joulewise.report.charts.chart import Chart, bundle, converter, vega_lite
from joulewise.report.charts.theme import COLUMN_MM, POINTS_PER_MM, Spec, Theme, config, dressed
from joulewise.report.export import unwritten
from joulewise.report.tables import as_csv
from joulewise.store.files import UNENCODABLE

_SCREEN_WIDTH: Final = 680.0
_SCREEN_SCALE, _PRINT_SCALE = 2.0, 600 / 72  # pixels a point; a printer has 600 to the inch
_LINE: Final = 80  # letters of a title


def write_chart(
    chart: Chart, path: Path, theme: Theme = "light", *, width_mm: float = COLUMN_MM
) -> None:
    """As the name of the file says: .svg .pdf .png .html .json (Vega-Lite) .csv.

    What is for ``print`` is ``width_mm`` wide, and has no title: a paper has its captions. What
    must be said of a figure, such as that it is simulated, stands in every form of it.
    """
    making = FORMATS.get(path.suffix.lower())
    if making is None:
        raise UsageError(
            f"{path.name} is no name for a figure", f"it ends in one of: {' '.join(FORMATS)}"
        )
    made = making(chart, theme, width_mm)
    try:
        path.write_bytes(made if isinstance(made, bytes) else made.encode(errors=UNENCODABLE))
    except OSError as error:
        raise unwritten(path, error, "name a folder that can be written to") from None


def _svg(chart: Chart, theme: Theme, width_mm: float) -> str:
    drawn: str = _converted("svg", chart, theme, width_mm)
    head, rest = drawn.split(">", 1)
    if theme == "print":  # a bare number is a pixel there, three quarters of a point
        head = head.replace('" height="', 'pt" height="').replace('" viewBox', 'pt" viewBox')
    said = f"<title>{escape(chart.title)}</title><desc>{escape(chart.caption)}</desc>"
    return f'{head} role="img">{said}{rest}'


def _pdf(chart: Chart, theme: Theme, width_mm: float) -> bytes:
    return bytes(_converted("pdf", chart, theme, width_mm))


def _png(chart: Chart, theme: Theme, width_mm: float) -> bytes:
    scale = _PRINT_SCALE if theme == "print" else _SCREEN_SCALE
    return bytes(_converted("png", chart, theme, width_mm, scale=scale, ppi=72))


def _html(chart: Chart, theme: Theme, _width_mm: float) -> str:
    """It is as wide as its window, and dark where the reader wants that."""
    spec = dressed(_spec(chart), theme)
    return _PAGE.format(
        title=escape(chart.title),
        description=escape(chart.caption),
        bundle=bundle(),
        spec=_in_script(spec),
        dark=_in_script(config("dark")),
    )


def _in_script(told: Spec) -> str:
    """JSON that cannot end the element which it stands in."""
    return json.dumps(told, separators=(",", ":")).replace("<", "\\u003c")


def _json(chart: Chart, theme: Theme, width_mm: float) -> str:
    return json.dumps(_fixed(chart, theme, width_mm), indent=1, ensure_ascii=False)


def _csv(chart: Chart, _theme: Theme, _width_mm: float) -> str:
    return as_csv(chart.table)


def _converted(form: str, chart: Chart, theme: Theme, width_mm: float, **how: float) -> Any:
    convert = getattr(converter(), f"vegalite_to_{form}")
    return convert(_fixed(chart, theme, width_mm), vl_version=vega_lite(), **how)


def _fixed(chart: Chart, theme: Theme, width_mm: float) -> Spec:
    spec = _spec(chart)
    if theme == "print":
        return dressed(spec, theme, round(width_mm * POINTS_PER_MM, 1))
    said = {"subtitle": chart.provenance} if chart.provenance else {}
    title = {"text": wrap(chart.title, _LINE), **said}
    return {**dressed(spec, theme, _SCREEN_WIDTH), "title": title}


def _spec(chart: Chart) -> Spec:
    converter()  # which says what is missing, if anything is
    spec: Spec = finite(chart.spec())
    return spec


FORMATS: Final[Mapping[str, Callable[[Chart, Theme, float], str | bytes]]] = {
    ".svg": _svg,
    ".pdf": _pdf,
    ".png": _png,
    ".html": _html,
    ".json": _json,
    ".csv": _csv,
}
"""By the end of a file's name."""

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

"""One look for all figures: colours, sizes, and what a mark looks like by what it means.

Drawings name no colour and no font. They say what a mark is (``mark_rule(style="reference")``), and
tell series apart by colour, dash and shape at once, so that a figure is read in grey as well.

Series told apart by colour, dash and shape at once, so that a figure is read in grey.

Axes with their units; records are in joules and seconds, what is drawn is easy to read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, Final, Literal

from joulewise.data.sweeps import POWER_LIMIT
from joulewise.units import digits

Theme = Literal["light", "dark", "print"]
Spec = dict[str, Any]

THEMES: Final[tuple[Theme, ...]] = ("light", "dark", "print")
COLUMN_MM, PAGE_MM = 85.0, 178.0
"""One column of a paper, and both."""

POINTS_PER_MM: Final = 72 / 25.4
"""A file counts in points, so that type of 7 is type of 7 where the paper has it."""

_FONT: Final = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', sans-serif"
_HEIGHT: Final = 260
_SIZES: Final = {"height": 1, "dx": 1, "dy": 1, "strokeWidth": 1, "size": 2, "symbolSize": 2}
_DATA: Final = "datasets"


@dataclass(frozen=True)
class _Ink:
    """What a theme paints with; ``scale`` is its type against that of a screen."""

    ground: str
    text: str
    muted: str
    grid: str
    shade: str
    series: tuple[str, ...]
    ramp: Mapping[str, Any]
    scale: float = 1.0


# Okabe and Ito's eight, less what cannot be seen on the ground: yellow on white, black on black.
_ON_WHITE: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_ON_BLACK: Final = ("#56B4E9", "#E69F00", "#009E73", "#F0E442", "#CC79A7", "#D55E00", "#FFFFFF")
_FROM_DARK: Final = {"scheme": "viridis", "extent": [0.0, 0.88]}
_TO_LIGHT: Final = {"scheme": "viridis", "extent": [0.25, 1.0]}
_INKS: Final[Mapping[Theme, _Ink]] = {
    "light": _Ink("#ffffff", "#1f2328", "#59636e", "#e6e9ed", "#8c959f", _ON_WHITE, _FROM_DARK),
    "dark": _Ink("#14171a", "#e6e9ed", "#9ba4ae", "#2b3138", "#7d8691", _ON_BLACK, _TO_LIGHT),
    "print": _Ink(
        "#ffffff", "#000000", "#404040", "#dedede", "#808080", _ON_WHITE, _FROM_DARK, 0.6
    ),
}


def dressed(spec: Mapping[str, Any], theme: Theme, width: float | str = "container") -> Spec:
    """The same figure in a theme's look, as wide as its place in a page or as so many points."""
    ink = _INKS[theme]
    worn: Spec = {name: _scaled(it, name, ink.scale) for name, it in spec.items() if name != _DATA}
    worn.update({_DATA: spec[_DATA]} if _DATA in spec else {}, config=config(theme))
    _fit(worn, width, ink.scale)
    return worn


@cache
def config(theme: Theme) -> Spec:
    """Vega-Lite's configuration; one that is drawn anew in another theme needs only another one."""
    ink = _INKS[theme]
    small, plain, large = (round(size * ink.scale, 1) for size in (11.5, 12, 14.5))
    line, hair = round(2 * ink.scale, 2), round(1.25 * ink.scale, 2)
    return {
        "background": ink.ground,
        "font": _FONT,
        "padding": 2 if theme == "print" else 6,
        "view": {"stroke": None, "continuousHeight": round(_HEIGHT * ink.scale)},
        "axis": {
            "labelColor": ink.muted,
            "titleColor": ink.text,
            "labelFontSize": small,
            "titleFontSize": plain,
            "titleFontWeight": "normal",
            "titlePadding": round(8 * ink.scale),
            "labelPadding": round(5 * ink.scale),
            "gridColor": ink.grid,
            "gridWidth": hair / 1.25,
            "domainColor": ink.shade,
            "tickColor": ink.shade,
            "tickSize": round(5 * ink.scale),
            "labelOverlap": "greedy",
        },
        "axisX": {"grid": False},
        "axisY": {"grid": True, "domain": False, "ticks": False, "titleAlign": "center"},
        "legend": {
            "orient": "top",
            "direction": "horizontal",
            "columns": 3,
            "offset": round(8 * ink.scale),
            "labelColor": ink.text,
            "titleColor": ink.muted,
            "labelFontSize": small,
            "titleFontSize": small,
            "titleFontWeight": "normal",
            "labelLimit": 0,
            "symbolSize": 70 * ink.scale**2,
            "symbolStrokeWidth": line,
            "columnPadding": round(16 * ink.scale),
            "rowPadding": round(3 * ink.scale),
            "gradientLength": round(180 * ink.scale),
            "gradientThickness": round(10 * ink.scale),
        },
        "header": {
            "labelColor": ink.text,
            "titleColor": ink.text,
            "labelFontSize": plain,
            "titleFontSize": plain,
            "titleFontWeight": "normal",
        },
        "title": {
            "anchor": "start",
            "frame": "bounds",
            "color": ink.text,
            "fontSize": large,
            "fontWeight": 600,
            "subtitleColor": ink.muted,
            "subtitleFontSize": plain,
            "offset": round(10 * ink.scale),
        },
        "range": {
            "category": list(ink.series),
            "ordinal": ink.ramp,
            "ramp": ink.ramp,
            "heatmap": ink.ramp,
        },
        "mark": {"color": ink.series[0]},
        "line": {"strokeCap": "butt", "strokeJoin": "round"},
        "area": {"fillOpacity": 0.25, "line": False},
        "point": {"size": 48 * ink.scale**2, "filled": True, "opacity": 1},
        "boxplot": {"size": round(18 * ink.scale), "median": {"color": ink.ground}},
        "text": {"color": ink.text},
        "rule": {"color": ink.muted},
        "style": _styles(ink, line, hair, small),
    }


def _styles(ink: _Ink, line: float, hair: float, small: float) -> Spec:
    """What marks mean; a width or size in a mark's own configuration would go before these.

    Fills and strokes let through what lies below, never whole marks, which cost more to draw.
    """
    area = ink.scale**2
    return {
        "line": {"strokeWidth": line},
        "rule": {"strokeWidth": hair},
        "text": {"fontSize": small},
        "reference": {"color": ink.muted, "strokeWidth": hair, "strokeDash": [5, 3]},
        "limit": {"color": ink.series[1], "strokeWidth": hair, "strokeDash": [2, 2]},
        "band": {"fillOpacity": 0.22, "strokeWidth": 0},
        "stretch": {"color": ink.shade, "fillOpacity": 0.14, "strokeWidth": 0},
        "interval": {"strokeWidth": hair},
        "course": {"strokeWidth": hair},
        "thin": {"strokeWidth": hair, "strokeOpacity": 0.6},
        "run": {"size": 26 * area, "filled": True, "fillOpacity": 0.45, "strokeWidth": 0},
        "mean": {"size": 60 * area, "filled": True, "opacity": 1},
        "box": {"fillOpacity": 0.5, "strokeWidth": 0},
        "median": {"color": ink.text, "thickness": hair, "opacity": 1},
        "fit": {"color": ink.text, "strokeWidth": line, "strokeDash": [1, 0]},
        "front": {"color": ink.muted, "strokeWidth": line, "strokeOpacity": 0.55},
        "level": {"color": ink.shade, "strokeWidth": hair, "strokeDash": [3, 3]},
        "choice": {
            "filled": False,
            "color": ink.text,
            "strokeWidth": hair * 1.3,
            "size": 170 * area,
            "opacity": 1,
        },
        "cell": {"stroke": ink.ground, "strokeWidth": hair},
        "best_cell": {"filled": False, "color": "black", "strokeWidth": line * 2.5},
        "best_cell_inside": {"filled": False, "color": "white", "strokeWidth": line},
        "cell_label": {"fontSize": round(0.8 * small, 1)},
        "label": {"color": ink.text, "fontSize": small},
        **_label_styles(ink, small),
        "label_within": {
            "color": ink.text,
            "fontSize": small,
            "align": "left",
            "baseline": "bottom",
            "dx": 4 * ink.scale,
            "dy": -2 * ink.scale,
        },
        "provenance": {"fill": ink.muted, "fontSize": small, "fontWeight": "normal"},
        "note": {"color": ink.muted, "fontSize": small},
        "note_end": {
            "color": ink.muted,
            "fontSize": small,
            "align": "right",
            "dy": -6 * ink.scale,
        },
        "note_start_below": {
            "color": ink.muted,
            "fontSize": small,
            "align": "left",
            "dx": 6 * ink.scale,
            "dy": 10 * ink.scale,
        },
    }


def _label_styles(ink: _Ink, small: float) -> Spec:
    """A text on each side of a point, at the distances that :mod:`.labels` reckons with."""
    along, across = 9 * ink.scale, 8 * ink.scale
    sides: Spec = {
        "lower_left": {"align": "right", "dx": -along, "dy": across},
        "upper_right": {"align": "left", "dx": along, "dy": -across},
        "right": {"align": "left", "dx": along},
        "left": {"align": "right", "dx": -along},
        "above": {"align": "center", "dy": -2 * across},
        "below": {"align": "center", "dy": 2 * across},
    }
    return {
        f"label_{side}": {"color": ink.text, "fontSize": small, "baseline": "middle", **it}
        for side, it in sides.items()
    }


def _scaled(told: Any, name: str, scale: float) -> Any:
    """A copy with all lengths and areas that a drawing gives as large as the type."""
    if isinstance(told, dict):
        return {key: _scaled(value, key, scale) for key, value in told.items()}
    if isinstance(told, list):
        return [_scaled(value, "", scale) for value in told]
    return told * scale ** _SIZES[name] if name in _SIZES and type(told) in {int, float} else told


def _fit(spec: Spec, width: float | str, scale: float) -> None:
    """Axes and legends are within the width; parts of a figure that has several share it."""
    parts = [part for key in ("hconcat", "vconcat", "concat") for part in spec.get(key, [])]
    if parts or "spec" in spec:
        within = 640.0 if isinstance(width, str) else width
        columns = len(spec.get("hconcat", [])) or spec.get("columns") or 1
        for part in parts or [spec["spec"]]:
            part.setdefault("width", round(max(within / columns - 80 * scale, 60 * scale)))
        return
    spec["width"] = width
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}


DASHES: Final = ([1, 0], [6, 3], [2, 2], [9, 3, 2, 3], [15, 5], [5, 2, 1, 2, 1, 2], [1, 3])
SHAPES: Final = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "wedge")
_LONGEST_OF_THREE: Final = 9  # letters of a name in three columns of a legend 290 px wide
_STROKE: Final = 450  # a sample that shows the longest dash


def coloured(field: str, names: Sequence[str], title: str = "") -> dict[str, Any]:
    """For what stands alone, such as a bar that is labelled."""
    import altair as alt

    scale = alt.Scale(domain=list(names))
    return {"color": alt.Color(f"{field}:N", scale=scale, legend=_legend(names, title))}


def shaped(field: str, names: Sequence[str], title: str = "") -> dict[str, Any]:
    """For points."""
    import altair as alt

    scale = alt.Scale(domain=list(names), range=list(islice(cycle(SHAPES), len(names))))
    shape = alt.Shape(f"{field}:N", scale=scale, legend=_legend(names, title))
    return {**coloured(field, names, title), "shape": shape}


def dashed(field: str, names: Sequence[str], title: str = "") -> dict[str, Any]:
    """For lines."""
    import altair as alt

    scale = alt.Scale(domain=list(names), range=list(islice(cycle(DASHES), len(names))))
    legend = _legend(names, title, symbolType="stroke", symbolSize=_STROKE)
    return {
        "color": alt.Color(f"{field}:N", scale=alt.Scale(domain=list(names)), legend=legend),
        "strokeDash": alt.StrokeDash(f"{field}:N", scale=scale, legend=legend),
    }


def _legend(names: Sequence[str], title: str, **more: Any) -> Any:
    import altair as alt

    return alt.Legend(title=title or None, columns=_columns(names), **more)


def _columns(names: Sequence[str]) -> int:
    """As many as fit a telephone, and no name alone in the last row where that can be."""
    if max(map(len, names), default=0) > _LONGEST_OF_THREE or len(names) in {2, 4}:
        return 2
    return 3


if TYPE_CHECKING:
    import altair as alt


@dataclass(frozen=True)
class DisplayUnit:
    """``of`` is how many of a record's unit make one of this."""

    name: str
    of: float = 1.0

    def expression(self, field: str) -> str:
        """For ``transform_calculate``."""
        return f"datum['{field}'] / {self.of!r}"

    def said(self, value: float) -> str:
        return digits(value / self.of)


def energy_unit(most_j: float) -> DisplayUnit:
    return _prefixed(most_j, "J")


def time_unit(most_s: float) -> DisplayUnit:
    for name, of in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if most_s >= 3 * of:
            return DisplayUnit(name, of)
    return DisplayUnit("s")


def product_unit(most_j_s: float) -> DisplayUnit:
    """Of the energy-delay product."""
    return _prefixed(most_j_s, "J s")


def limit_axis() -> alt.X:
    import altair as alt

    scale = alt.Scale(zero=False, nice=False, padding=14)
    return alt.X(f"{POWER_LIMIT}:Q").title("power limit (W)").scale(scale).axis(tickCount=4)


WATTS: Final = f"datum['{POWER_LIMIT}'] + ' W'"
"""The text of a limit."""


def _prefixed(most: float, unit: str) -> DisplayUnit:
    for prefix, of in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if most >= 2 * of:
            return DisplayUnit(f"{prefix}{unit}", of)
    return DisplayUnit(unit)

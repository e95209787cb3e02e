"""One look for all figures: colours, sizes, and what a mark looks like by what it means.

Drawings name no colour and no font. They say what a mark is (``mark_rule(style="reference")``), and
tell series apart by colour, dash and shape at once, so that a figure is read in grey as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal

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

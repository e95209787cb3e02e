"""One theme for all figures: colours, fonts, sizes, and how a mark looks by what it means.

Drawings name no colour and no font. They name a style (``mark_rule(style="reference")``), which is
defined here once for each theme, and tell series apart by colour, dash and shape at once
(:mod:`.encoding`), so that a figure can be read in greyscale as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal

Theme = Literal["light", "dark", "print"]
Spec = dict[str, Any]

THEMES: Final[tuple[Theme, ...]] = ("light", "dark", "print")
COLUMN_MM: Final = 85.0
"""Default width of a printed figure: one column of a two-column paper (chosen)."""

POINTS_PER_MM: Final = 72 / 25.4
"""Vega's pixels are points in a PDF, so that type of size 7 is 7 points on paper."""

_FONT: Final = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', sans-serif"
# Height of a plot in pixels, chosen so that a figure of a page's width is about 5:2.
PLOT_HEIGHT_PX: Final = 260
EPOCH_PANEL_PX: Final = 240
# Properties of a drawing that scale with the type, and their power of it: lengths 1, areas 2.
_SCALED_PROPERTIES: Final = {
    "height": 1,
    "dx": 1,
    "dy": 1,
    "strokeWidth": 1,
    "size": 2,
    "symbolSize": 2,
}
# Distance in pixels from a point to its label, chosen so that they do not touch.
LABEL_ALONG_PX, LABEL_ACROSS_PX = 9.0, 8.0
LABEL_SIDES: Final = {
    "lower_left": (-1, 1),
    "upper_right": (1, -1),
    "right": (1, 0),
    "left": (-1, 0),
    "above": (0, -2),
    "below": (0, 2),
}
"""Sides of a point on which a label may stand: to the left or right, and how far down.

The preferred come first: below and left of a Pareto front nothing lies.
"""

# Width in pixels that parts of a figure share before the page's script fits them, and what each
# keeps free of it for its axis (both as in page.js); a part is never narrower than the last.
_CONTAINER_PX, _AXIS_PX, _NARROWEST_PX = 640.0, 80, 60
# Of a panel of boxplots: the widest box, and the width that its boxes share (chosen).
_WIDEST_BOX_PX, _BOXES_PX = 18, 200


@dataclass(frozen=True)
class _Palette:
    """Colours of a theme; ``scale`` is the size of its type relative to that on a screen."""

    ground: str
    text: str
    muted: str
    grid: str
    shade: str
    series: tuple[str, ...]
    ramp: Mapping[str, Any]
    scale: float = 1.0


# Okabe and Ito's colours for readers with colour blindness (https://jfly.uni-koeln.de/color/),
# without those that cannot be seen on the ground: yellow on white, black on black.
_ON_WHITE: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_ON_BLACK: Final = ("#56B4E9", "#E69F00", "#009E73", "#F0E442", "#CC79A7", "#D55E00", "#FFFFFF")
# The part of viridis that has enough contrast with the ground.
_FROM_DARK: Final = {"scheme": "viridis", "extent": [0.0, 0.88]}
_TO_LIGHT: Final = {"scheme": "viridis", "extent": [0.25, 1.0]}
# In print, type of 12 px becomes 7.2 points, the usual size of labels in a paper.
_PALETTES: Final[Mapping[Theme, _Palette]] = {
    "light": _Palette("#ffffff", "#1f2328", "#59636e", "#e6e9ed", "#8c959f", _ON_WHITE, _FROM_DARK),
    "dark": _Palette("#14171a", "#e6e9ed", "#9ba4ae", "#2b3138", "#7d8691", _ON_BLACK, _TO_LIGHT),
    "print": _Palette(
        "#ffffff", "#000000", "#404040", "#dedede", "#808080", _ON_WHITE, _FROM_DARK, 0.6
    ),
}


def apply_theme(spec: Mapping[str, Any], theme: Theme, width: float | str = "container") -> Spec:
    """A copy of a Vega-Lite specification in a theme.

    ``width`` is in points; ``"container"`` is as wide as the figure's place in a page.
    """
    scale = _PALETTES[theme].scale
    themed: Spec = {
        name: value if name == "datasets" else _scale_lengths(value, name, scale)
        for name, value in spec.items()
    }
    themed["config"] = theme_config(theme)
    _set_width(themed, width, scale)
    return themed


@cache
def theme_config(theme: Theme) -> Spec:
    """Vega-Lite's configuration of a theme; to redraw a figure in another one, replace only this.

    Sizes are in pixels (points in print), chosen by eye on a page of 1000 px and a column of 85 mm.
    """
    ink = _PALETTES[theme]
    small, plain, large = (round(size * ink.scale, 1) for size in (11.5, 12, 14.5))
    line, hair = round(2 * ink.scale, 2), round(1.25 * ink.scale, 2)
    return {
        "background": ink.ground,
        "font": _FONT,
        "padding": 2 if theme == "print" else 6,
        "view": {"stroke": None, "continuousHeight": round(PLOT_HEIGHT_PX * ink.scale)},
        "axis": {
            **_text_config(ink.muted, small, ink.text, plain),
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
            **_text_config(ink.text, small, ink.muted, small),
            "labelLimit": 0,
            "symbolSize": 70 * ink.scale**2,
            "symbolStrokeWidth": line,
            "columnPadding": round(16 * ink.scale),
            "rowPadding": round(3 * ink.scale),
            "gradientLength": round(180 * ink.scale),
            "gradientThickness": round(10 * ink.scale),
        },
        "header": _text_config(ink.text, plain, ink.text, plain),
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


def _text_config(label: str, label_px: float, title: str, title_px: float) -> Spec:
    """Colours and sizes of the labels and the title of an axis, a legend or a header."""
    return {
        "labelColor": label,
        "labelFontSize": label_px,
        "titleColor": title,
        "titleFontSize": title_px,
        "titleFontWeight": "normal",
    }


def _styles(ink: _Palette, line: float, hair: float, small: float) -> Spec:
    """Marks by their meaning. A size in a mark's own configuration would override these.

    Fills and strokes are translucent, never whole marks: group opacity is slow to draw.
    """
    area = ink.scale**2
    ring = {"filled": False, "color": ink.text}
    label, note = ({"color": color, "fontSize": small} for color in (ink.text, ink.muted))
    return {
        "line": {"strokeWidth": line},
        "rule": {"strokeWidth": hair},
        "text": {"fontSize": small},
        "reference": {"color": ink.muted, "strokeWidth": hair, "strokeDash": [5, 3]},
        "limit": {"color": ink.series[1], "strokeWidth": hair, "strokeDash": [2, 2]},
        "in_force": {"color": ink.series[1], "strokeWidth": line},
        "band": {"fillOpacity": 0.22, "strokeWidth": 0},
        "stretch": {"color": ink.shade, "fillOpacity": 0.14, "strokeWidth": 0},
        "interval": {"strokeWidth": hair},
        "course": {"strokeWidth": hair},
        "thin": {"strokeWidth": hair, "strokeOpacity": 0.6},
        "run": {"size": 26 * area, "filled": True, "fillOpacity": 0.45, "strokeWidth": 0},
        "mean": {"size": 60 * area, "filled": True, "opacity": 1},
        "off_line": {**ring, "color": ink.muted, "strokeWidth": hair, "size": 40 * area},
        "box": {"fillOpacity": 0.5, "strokeWidth": 0},
        "median": {"color": ink.text, "thickness": hair, "opacity": 1},
        "fit": {"color": ink.text, "strokeWidth": line, "strokeDash": [1, 0]},
        "front": {"color": ink.muted, "strokeWidth": line, "strokeOpacity": 0.55},
        "level": {"color": ink.shade, "strokeWidth": hair, "strokeDash": [3, 3]},
        "choice": {**ring, "strokeWidth": hair * 1.3, "size": 170 * area, "opacity": 1},
        "cell": {"stroke": ink.ground, "strokeWidth": hair},
        "best_cell": {"filled": False, "color": "black", "strokeWidth": line * 2.5},
        "best_cell_inside": {"filled": False, "color": "white", "strokeWidth": line},
        "cell_label": {"fontSize": round(0.8 * small, 1)},
        "label": label,
        "halo": {"stroke": ink.ground, "strokeWidth": 2 * line},  # below a label that crosses lines
        **_label_styles(ink, small),
        "label_within": {
            **label,
            "align": "left",
            "baseline": "bottom",
            "dx": 4 * ink.scale,
            "dy": -2 * ink.scale,
        },
        "provenance": {"fill": ink.muted, "fontSize": small, "fontWeight": "normal"},
        "note": note,
        "note_end": {**note, "align": "right", "dy": -6 * ink.scale},
        "note_start_below": {**note, "align": "left", "dx": 6 * ink.scale, "dy": 10 * ink.scale},
    }


def _label_styles(ink: _Palette, small: float) -> Spec:
    """A text on each side of a point, at the distances that :mod:`.labels` assumes."""
    return {
        f"label_{side}": {
            "color": ink.text,
            "fontSize": small,
            "baseline": "middle",
            "align": ("center", "left", "right")[along],
            "dx": along * LABEL_ALONG_PX * ink.scale,
            "dy": down * LABEL_ACROSS_PX * ink.scale,
        }
        for side, (along, down) in LABEL_SIDES.items()
    }


def _scale_lengths(value: Any, name: str, scale: float) -> Any:
    """A copy of the property ``name`` in which all lengths and areas are scaled with the type."""
    if isinstance(value, dict):
        return {key: _scale_lengths(inner, key, scale) for key, inner in value.items()}
    if isinstance(value, list):
        return [_scale_lengths(inner, "", scale) for inner in value]
    is_scaled = name in _SCALED_PROPERTIES and type(value) in {int, float}
    return value * scale ** _SCALED_PROPERTIES[name] if is_scaled else value


def _set_width(spec: Spec, width: float | str, scale: float) -> None:
    """Fit axes and legends into the width, which the parts of a compound figure share."""
    parts = [part for key in ("hconcat", "vconcat", "concat") for part in spec.get(key, [])]
    if parts or "spec" in spec:
        within = _CONTAINER_PX if isinstance(width, str) else width
        columns = len(spec.get("hconcat", [])) or spec.get("columns") or 1
        part_px = max(within / columns - _AXIS_PX * scale, _NARROWEST_PX * scale)
        for part in parts or [spec["spec"]]:
            part.setdefault("width", round(part_px))
        return
    spec["width"] = width
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}


def box_width_px(boxes: int) -> int:
    """Width of each box of a panel of boxplots that has so many."""
    return max(min(_WIDEST_BOX_PX, _BOXES_PX // boxes), 2)

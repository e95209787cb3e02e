"""Series told apart by colour, dash and shape at once, so that a figure is read in grey."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice
from typing import Any, Final

DASHES: Final = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4], [4, 2, 1, 2, 1, 2], [1, 3])
SHAPES: Final = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "wedge")


def coloured(field: str, names: Sequence[str], title: str = "") -> dict[str, Any]:
    """For what stands alone, such as a bar that is labelled."""
    import altair as alt

    scale = alt.Scale(domain=list(names))
    return {"color": alt.Color(f"{field}:N", scale=scale, legend=_legend(title))}


def shaped(field: str, names: Sequence[str], title: str = "") -> dict[str, Any]:
    """For points."""
    import altair as alt

    scale = alt.Scale(domain=list(names), range=list(islice(cycle(SHAPES), len(names))))
    shape = alt.Shape(f"{field}:N", scale=scale, legend=_legend(title))
    return {**coloured(field, names, title), "shape": shape}


def dashed(field: str, names: Sequence[str], title: str = "") -> dict[str, Any]:
    """For lines."""
    import altair as alt

    scale = alt.Scale(domain=list(names), range=list(islice(cycle(DASHES), len(names))))
    dash = alt.StrokeDash(f"{field}:N", scale=scale, legend=_legend(title))
    return {**coloured(field, names, title), "strokeDash": dash}


def _legend(title: str) -> Any:
    import altair as alt

    return alt.Legend(title=title or None)

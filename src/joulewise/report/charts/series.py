"""Series told apart by colour, dash and shape at once, so that a figure is read in grey."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice
from typing import Any, Final

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

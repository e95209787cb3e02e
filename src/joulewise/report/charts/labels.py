"""Labels of points in a figure, placed so that none covers a point or another label.

Vega-Lite has no placement of labels, and a figure is as wide as its page. They are therefore
placed here for several widths, by a greedy search over the sides of each point; the drawing takes
those of its own width. A narrow page shows fewer labels, never overlapping ones.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.report.tables import Column, Table

if TYPE_CHECKING:
    import altair as alt
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Place = tuple[float, float]

SIDES: Final = ("lower_left", "upper_right", "right", "left", "above", "below")
"""The sides of a point, the preferred first: below and left of a Pareto front nothing lies."""

_WIDTHS_PX: Final = (250.0, 300.0, 360.0, 430.0, 510.0, 610.0, 730.0, 870.0, 1040.0, 1250.0)
"""Between two of these, from a telephone's to a wide page's, labels stay where they are.

Points move apart as a plot gets wider; the steps are so small that between the widths at which
labels are tried none passes another.
"""

_HEIGHT_PX: Final = 260.0  # as in the look of all figures
_LETTER_PX: Final = 6.2  # the mean advance of Helvetica at 11.5 px, a little too wide on purpose
_LINE_PX: Final = 13.0
_POINT_PX: Final = 5.0  # half the side of a point's mark
_ALONG_PX, _ACROSS_PX = 9.0, 8.0  # from the point to the text, as in the styles of the look
_ABOVE_PX: Final = 8.0  # there is so much between a plot and its legend
_LOG_FROM: Final = 4.0  # a span of this factor and more is drawn on a logarithmic axis


@dataclass(frozen=True)
class Frame:
    """The part of the plane that is drawn; ``is_log`` where both axes are logarithmic."""

    left: float
    right: float
    bottom: float
    top: float
    is_log: bool = False

    @classmethod
    def around(cls, places: Sequence[Place], margin: float, *, may_be_log: bool = False) -> Frame:
        """With ``margin``, a share of the span, on all sides."""
        xs, ys = ([place[at] for place in places] for at in (0, 1))
        is_log = may_be_log and any(
            min(values) > 0 and max(values) > _LOG_FROM * min(values) for values in (xs, ys)
        )
        return cls(*_widened(xs, margin, is_log), *_widened(ys, margin, is_log), is_log)

    def scale(self, along: str) -> alt.Scale:
        """For the axis ``x`` or ``y``."""
        import altair as alt

        ends = [self.left, self.right] if along == "x" else [self.bottom, self.top]
        return alt.Scale(
            domain=ends, type="log" if self.is_log else "linear", nice=False, zero=False
        )

    def in_pixels(self, places: Sequence[Place], widths_px: Sequence[float]) -> Floats:
        """From the upper left corner, in plots of these widths: widths by places by (x, y)."""
        x, y = np.reshape(np.asarray(places, float), (-1, 2)).T
        left, right, bottom, top = self.left, self.right, self.bottom, self.top
        if self.is_log:
            x, y = np.log(x), np.log(y)
            left, right, bottom, top = np.log((left, right, bottom, top))
        across = np.multiply.outer(np.asarray(widths_px), (x - left) / (right - left))
        down = _HEIGHT_PX * (1 - (y - bottom) / (top - bottom))
        return np.stack([across, np.broadcast_to(down, across.shape)], axis=-1)


@dataclass(frozen=True)
class Label:
    """The text of a point, and on which side of it it stands in a plot of a width in pixels."""

    number: int
    text: str
    side: str
    from_px: float
    below_px: float


def place_labels(
    frame: Frame,
    points: Sequence[Place],
    texts: Mapping[int, Sequence[str]],
    *,
    always: Collection[int] = (),
    lines: Sequence[Place] = (),
) -> list[Label]:
    """Texts are by the number of their point, the most important first.

    Of the texts of one point, the next is taken where there is no room for the one before. Those
    of ``always`` are placed at every width, where they cover least. The others are left out where
    they would cover a point or a label. ``lines`` are places that are better not covered.
    """
    placed: list[Label] = []
    for low_px, high_px in itertools.pairwise(_WIDTHS_PX):
        widths_px = (low_px, (low_px + high_px) / 2, high_px)
        at = frame.in_pixels(points, widths_px)
        drawn = frame.in_pixels(lines, widths_px)
        from_px = 0.0 if low_px == _WIDTHS_PX[0] else low_px
        below_px = math.inf if high_px == _WIDTHS_PX[-1] else high_px
        taken = np.empty((len(widths_px), 0, 4))
        for number, choices in texts.items():
            others = np.delete(at, number, axis=1)
            boxes = {
                (text, side): _boxes(at[:, number], text, side)
                for text in choices
                for side in SIDES
            }
            cost = {
                where: (
                    _count_outside(box, widths_px) + _count_overlaps(box, taken),
                    _count_covered(box, others, _POINT_PX),
                    _count_covered(box, drawn, 0.0),
                )
                for where, box in boxes.items()
            }
            best = min(cost, key=lambda where: cost[where])
            if number in always or cost[best][:2] == (0, 0):
                placed.append(Label(number, *best, from_px, below_px))
                taken = np.concatenate([taken, boxes[best][:, np.newaxis]], axis=1)
    return placed


def label_table(labels: Sequence[Label], places: Sequence[Mapping[str, float]]) -> Table:
    """``places`` has the fields of each point by which the drawing finds its place."""
    records = tuple(
        {
            **places[it.number],
            "label": it.text,
            "side": it.side,
            "from_px": it.from_px,
            "below_px": None if math.isinf(it.below_px) else it.below_px,
        }
        for it in labels
    )
    columns = (Column("label", right=False), Column("side", right=False), Column("from", "px"))
    rows = tuple((it.text, it.side.replace("_", " "), f"{it.from_px:g}") for it in labels)
    return Table("Labels, by the width of the figure", columns, rows, records)


def label_layers(placed: alt.Chart, table: Table) -> Iterator[alt.Chart]:
    """A layer of text for each side that is used; ``width`` is the width of the plot itself."""
    import altair as alt

    fits = "datum.from_px <= width && (datum.below_px == null || width < datum.below_px)"
    for side in SIDES:
        if any(record["side"] == side for record in table.records):
            yield (
                placed.transform_filter(f"datum.side == '{side}' && {fits}")
                .mark_text(style=f"label_{side}")
                .encode(text=alt.Text("label:N"))
            )


def _widened(values: Sequence[float], margin: float, is_log: bool) -> tuple[float, float]:
    low, high = min(values), max(values)
    if is_log:
        factor = (high / low) ** margin
        return low / factor, high * factor
    room = margin * (high - low) or 0.05 * abs(high) or 1.0
    return low - room, high + room


def _boxes(at: Floats, text: str, side: str) -> Floats:
    """Left, right, top and bottom of a text beside a point, one row for each width."""
    x, y = at.T
    wide = _LETTER_PX * len(text)
    left = {
        "lower_left": x - _ALONG_PX - wide,
        "left": x - _ALONG_PX - wide,
        "upper_right": x + _ALONG_PX,
        "right": x + _ALONG_PX,
    }.get(side, x - wide / 2)
    middle = {
        "lower_left": y + _ACROSS_PX,
        "upper_right": y - _ACROSS_PX,
        "above": y - 2 * _ACROSS_PX,
        "below": y + 2 * _ACROSS_PX,
    }.get(side, y)
    return np.stack([left, left + wide, middle - _LINE_PX / 2, middle + _LINE_PX / 2], axis=-1)


def _count_outside(boxes: Floats, widths_px: Sequence[float]) -> int:
    left, right, top, bottom = boxes.T
    outside = (left < 0) | (right > widths_px) | (top < -_ABOVE_PX) | (bottom > _HEIGHT_PX)
    return int(np.count_nonzero(outside))


def _count_overlaps(boxes: Floats, others: Floats) -> int:
    """``others`` has rows of boxes, one row for each width."""
    left, right, top, bottom = boxes.T[..., np.newaxis]
    overlaps = (others[..., 0] < right) & (others[..., 1] > left)
    overlaps &= (others[..., 2] < bottom) & (others[..., 3] > top)
    return int(np.count_nonzero(overlaps))


def _count_covered(boxes: Floats, places: Floats, room_px: float) -> int:
    left, right, top, bottom = boxes.T[..., np.newaxis]
    x, y = places[..., 0], places[..., 1]
    inside = (x > left - room_px) & (x < right + room_px)
    inside &= (y > top - room_px) & (y < bottom + room_px)
    return int(np.count_nonzero(inside))

"""Labels of points in a figure, placed so that none covers a point or another label.

Vega-Lite has no label placement, and a figure is as wide as its page. Labels are therefore placed
here for several widths, by a greedy search over the sides of each point (as in Christensen, Marks
and Shieber 1995, "An empirical study of algorithms for point-feature label placement"); the drawing
shows those of its own width. A narrow page shows fewer labels, never overlapping ones.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from joulewise.report.charts.chart import alt
from joulewise.report.charts.records import record_table
from joulewise.report.charts.theme import (
    LABEL_ACROSS_PX,
    LABEL_ALONG_PX,
    LABEL_SIDES,
    PLOT_HEIGHT_PX,
)
from joulewise.report.tables import Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Position = tuple[float, float]
"""x and y in the units of the axes."""

_WIDTHS_PX: Final = (250.0, 300.0, 360.0, 430.0, 510.0, 610.0, 730.0, 870.0, 1040.0, 1250.0)
"""Widths of a plot, from a telephone's to a wide page's, between which labels do not move.

Points move apart as a plot gets wider; the steps (a fifth each) are small enough that no label
passes another between the widths at which it is tried.
"""

# Sizes in pixels of a label of 11.5 px Helvetica; its mean advance is a little too wide on purpose.
_LETTER_PX: Final = 6.2
_LINE_PX: Final = 13.0
_POINT_PX: Final = 5.0  # half the side of a point's mark
_ABOVE_PX: Final = 8.0  # free between a plot and the legend above it
_LOG_FROM: Final = 4.0  # values that span this factor or more get a logarithmic axis (chosen)
# Share of a value that is left free around it where all values are the same.
_SAME_VALUE_MARGIN: Final = 0.05


@dataclass(frozen=True)
class Frame:
    """The part of the plane that is drawn; ``is_log`` where both axes are logarithmic."""

    left: float
    right: float
    bottom: float
    top: float
    is_log: bool = False

    @classmethod
    def around(
        cls, positions: Sequence[Position], margin: float, *, may_be_log: bool = False
    ) -> Frame:
        """With ``margin``, a share of the positions' range, on all sides."""
        xs, ys = zip(*positions, strict=True)
        is_log = may_be_log and any(
            min(values) > 0 and max(values) > _LOG_FROM * min(values) for values in (xs, ys)
        )
        return cls(*_widen(xs, margin, is_log), *_widen(ys, margin, is_log), is_log)

    def scale(self, axis: str) -> alt.Scale:
        """For the axis ``x`` or ``y``."""
        ends = [self.left, self.right] if axis == "x" else [self.bottom, self.top]
        return alt.Scale(
            domain=ends, type="log" if self.is_log else "linear", nice=False, zero=False
        )

    def in_pixels(self, positions: Sequence[Position], widths_px: Sequence[float]) -> Floats:
        """From the upper left corner, in plots of these widths: widths by positions by (x, y)."""
        x, y = np.reshape(np.asarray(positions, float), (-1, 2)).T
        left, right, bottom, top = self.left, self.right, self.bottom, self.top
        if self.is_log:
            x, y = np.log(x), np.log(y)
            left, right, bottom, top = np.log((left, right, bottom, top))
        across = np.multiply.outer(np.asarray(widths_px), (x - left) / (right - left))
        down = PLOT_HEIGHT_PX * (1 - (y - bottom) / (top - bottom))
        return np.stack([across, np.broadcast_to(down, across.shape)], axis=-1)


@dataclass(frozen=True)
class Label:
    """The text of point ``number``, and its side in plots from one width in pixels to another."""

    number: int
    text: str
    side: str
    from_px: float
    below_px: float


def place_labels(
    frame: Frame,
    points: Sequence[Position],
    texts: Mapping[int, Sequence[str]],
    *,
    always: Collection[int] = (),
    lines: Sequence[Position] = (),
) -> list[Label]:
    """Place ``texts``, which are by the index of their point, the most important first.

    Each point has one or more alternative texts, the preferred first. Points of ``always`` are
    labelled at every width, where that covers least; the others only where the label covers no
    point and no other label. ``lines`` are positions that are left free where possible.
    """
    placed: list[Label] = []
    for low_px, high_px in itertools.pairwise(_WIDTHS_PX):
        widths_px = (low_px, (low_px + high_px) / 2, high_px)
        points_px = frame.in_pixels(points, widths_px)
        lines_px = frame.in_pixels(lines, widths_px)
        from_px = 0.0 if low_px == _WIDTHS_PX[0] else low_px
        below_px = math.inf if high_px == _WIDTHS_PX[-1] else high_px
        taken = np.empty((len(widths_px), 0, 4))
        for number, choices in texts.items():
            others_px = np.delete(points_px, number, axis=1)
            boxes = {
                (text, side): _boxes(points_px[:, number], text, side)
                for text in choices
                for side in LABEL_SIDES
            }
            cost = {
                candidate: (
                    _count_outside(box, widths_px) + _count_overlaps(box, taken),
                    _count_covered(box, others_px, _POINT_PX),
                    _count_covered(box, lines_px, 0.0),
                )
                for candidate, box in boxes.items()
            }
            best = min(cost, key=lambda candidate: cost[candidate])
            if number in always or cost[best][:2] == (0, 0):
                placed.append(Label(number, *best, from_px, below_px))
                taken = np.concatenate([taken, boxes[best][:, np.newaxis]], axis=1)
    return placed


def label_table(labels: Sequence[Label], positions: Sequence[Mapping[str, float]]) -> Table:
    """``positions`` has, for each point, the fields by which the drawing finds its position."""
    records = (
        {
            **positions[label.number],
            "label": label.text,
            "side": label.side,
            "from_px": label.from_px,
            "below_px": None if math.isinf(label.below_px) else label.below_px,
        }
        for label in labels
    )
    return record_table(
        "Labels, by the width of the figure",
        "label side from_px",
        records,
        side=lambda side: side.replace("_", " "),
        from_px="{:g}".format,
    )


def label_layers(positioned: Any, table: Table) -> Iterator[Any]:
    """A layer of text for each side that is used; ``width`` is Vega's name for the plot's width."""
    is_shown = "datum.from_px <= width && (datum.below_px == null || width < datum.below_px)"
    for side in LABEL_SIDES:
        if any(record["side"] == side for record in table.records):
            yield (
                positioned.transform_filter(f"datum.side == '{side}' && {is_shown}")
                .mark_text(style=f"label_{side}")
                .encode(text=alt.Text("label:N"))
            )


def _widen(values: Sequence[float], margin: float, is_log: bool) -> tuple[float, float]:
    low, high = min(values), max(values)
    if is_log:
        factor = (high / low) ** margin
        return low / factor, high * factor
    free = margin * (high - low) or _SAME_VALUE_MARGIN * abs(high) or 1.0
    return low - free, high + free


def _boxes(point_px: Floats, text: str, side: str) -> Floats:
    """Left, right, top and bottom of a text beside a point, one row for each width."""
    x, y = point_px.T
    along, down = LABEL_SIDES[side]
    width_px = _LETTER_PX * len(text)
    # From the point to the right, from the left to the point, or centred on it.
    left = x + along * LABEL_ALONG_PX - (0.5, 0.0, 1.0)[along] * width_px
    middle = y + down * LABEL_ACROSS_PX
    return np.stack([left, left + width_px, middle - _LINE_PX / 2, middle + _LINE_PX / 2], axis=-1)


def _count_outside(boxes: Floats, widths_px: Sequence[float]) -> int:
    left, right, top, bottom = boxes.T
    outside = (left < 0) | (right > widths_px) | (top < -_ABOVE_PX) | (bottom > PLOT_HEIGHT_PX)
    return int(np.count_nonzero(outside))


def _count_overlaps(boxes: Floats, others: Floats) -> int:
    """``others`` has rows of boxes, one row for each width."""
    left, right, top, bottom = boxes.T[..., np.newaxis]
    overlaps = (others[..., 0] < right) & (others[..., 1] > left)
    overlaps &= (others[..., 2] < bottom) & (others[..., 3] > top)
    return int(np.count_nonzero(overlaps))


def _count_covered(boxes: Floats, positions_px: Floats, margin_px: float) -> int:
    left, right, top, bottom = boxes.T[..., np.newaxis]
    x, y = positions_px[..., 0], positions_px[..., 1]
    inside = (x > left - margin_px) & (x < right + margin_px)
    inside &= (y > top - margin_px) & (y < bottom + margin_px)
    return int(np.count_nonzero(inside))

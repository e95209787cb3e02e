import itertools
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.report.charts.labels import Frame, place_labels

WIDTHS = (250, 290, 350, 480, 620, 700, 780, 960, 1200)
LETTER, LINE = 5.9, 12  # of the type of a page, in pixels


def box(frame, label, point, width):
    """Where a label is drawn, by the styles of the look."""
    x, y = frame.in_pixels([point], [width])[0, 0]
    wide = LETTER * len(label.text)
    left = {"l": x - 9 - wide, "r": x + 9}.get(label.side.rpartition("_")[2][0], x - wide / 2)
    if label.side in {"above", "below"}:
        left = x - wide / 2
    shift = {"lower_left": 8, "upper_right": -8, "above": -16, "below": 16}.get(label.side, 0)
    return left, left + wide, y + shift - LINE / 2, y + shift + LINE / 2


def overlap(one, other):
    return one[0] < other[1] and other[0] < one[1] and one[2] < other[3] and other[2] < one[3]


def at_width(labels, width):
    return [it for it in labels if it.from_px <= width < it.below_px]


points = st.lists(
    st.tuples(st.floats(0.5, 2), st.floats(0.5, 2)), min_size=2, max_size=40, unique=True
)


@settings(deadline=None, max_examples=40)
@given(points)
def test_no_label_covers_another_or_a_point_at_any_width(places):
    frame = Frame.around(places, 0.06)
    labels = place_labels(frame, places, {i: (f"{i}, 150 W",) for i in range(len(places))})
    for width in WIDTHS:
        shown = at_width(labels, width)
        boxes = [box(frame, it, places[it.number], width) for it in shown]
        assert not any(overlap(a, b) for a, b in itertools.combinations(boxes, 2))
        for it, (left, right, top, bottom) in zip(shown, boxes, strict=True):
            for i, place in enumerate(places):
                x, y = frame.in_pixels([place], [width])[0, 0]
                assert i == it.number or not (left < x < right and top < y < bottom)


def test_required_labels_are_placed_at_every_width():
    places = [(1 + i / 1000, 1 - i / 1000) for i in range(50)]
    frame = Frame.around(places, 0.06)
    labels = place_labels(frame, places, dict.fromkeys(range(50), ("48, 200 W",)), always=[20])
    for width in WIDTHS:
        assert 20 in {it.number for it in at_width(labels, width)}
    assert len(at_width(labels, 250)) < len(at_width(labels, 960)) < 50


def test_the_short_text_is_used_where_the_long_one_does_not_fit():
    places = [(0.0, 0.0), (1.0, 1.0), (0.5, 0.5)]
    frame = Frame.around(places, 0.06)
    labels = place_labels(frame, places, {2: ("long " * 20, "short")}, always=[2])
    assert [it.text for it in at_width(labels, 250)] == ["short"]
    assert [it.text for it in at_width(labels, 1250)] == ["long " * 20]


def test_identical_points_have_a_frame():
    frame = Frame.around([(1.0, 1.0)], 0.06)
    assert frame.left < 1 < frame.right
    assert all(map(math.isfinite, frame.in_pixels([(1.0, 1.0)], [250.0])[0, 0]))

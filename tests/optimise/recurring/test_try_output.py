"""The values of a metric in what a try prints."""

import pytest

from joulewise.optimise.recurring.try_output import PrintedValues, parse_pattern
from joulewise.process.output_copy import OutputPart

PATTERN = parse_pattern(r"acc=(?P<value>[0-9.]+|nan)$")


def read(*parts, gaps=()):
    """The values of parts ``(time, text)``, and those that are known only at the end."""
    written = [
        OutputPart(t_ns, *(more or (1,)), place in gaps, text.encode())
        for place, (t_ns, text, *more) in enumerate(parts)
    ]
    printed = PrintedValues("acc", PATTERN, lambda: [written.pop(0)] if written else [])
    before = [value for _ in parts for value in printed.poll()]
    return [[(one.value, one.t_ns) for one in some] for some in (before, printed.finish())]


def test_values_are_read_from_lines_in_parts():
    assert read((1, "acc=0."), (2, "25\nacc=0.5\nac"), (3, "c=1\r")) == [
        [(0.25, 2), (0.5, 2), (1.0, 3)],
        [],
    ]


def test_a_line_without_an_end_is_read_at_the_end():
    assert read((1, "acc=0.5"), (2, " acc=0.75")) == [[], [(0.75, 2)]]


def test_colours_are_left_out():
    assert read((1, "\x1b[1macc=\x1b[32m0.5\x1b[0m\n")) == [[(0.5, 1)], []]


@pytest.mark.parametrize("stream", [1, 2])
def test_a_line_with_a_gap_has_no_value(stream):
    """Neither its begin nor its end is a number that was printed, whichever stream lost some."""
    parts = ((1, "acc=0."), (2, "5\n", stream), (3, "\nacc=0.75\n"))
    assert read(*parts, gaps={1}) == [[(0.75, 3)], []]

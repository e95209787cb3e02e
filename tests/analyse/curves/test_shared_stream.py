"""Viewers of a lane see each of its rows once, whoever reads it."""

import numpy as np
import pytest

from joulewise.analyse.chunks import ArrayStream, SharedStream

LANE = ArrayStream(
    {"t_ns": np.arange(7), "power_w": np.arange(7.0), "energy_j": np.zeros(7)}, chunk_rows=3
)


class Viewer:
    columns = ("power_w",)

    def __init__(self):
        self.seen = []

    def take(self, chunk):
        self.seen += chunk["power_w"].tolist()


@pytest.mark.parametrize(
    "reads", [[], [("t_ns", "energy_j")], [("t_ns", "power_w")], [("t_ns", "power_w")] * 2]
)
def test_every_row_is_viewed_once_however_often_it_is_read(reads):
    viewer = Viewer()
    shown = SharedStream(LANE, viewer)
    for columns in reads:
        rows = [t_ns for chunk in shown.chunks(columns) for t_ns in chunk["t_ns"].tolist()]
        assert rows == list(range(LANE.rows))
    shown.finish()
    assert viewer.seen == list(range(LANE.rows))

"""The adaptive search along one knob, on curves whose truth is known."""

from __future__ import annotations

import pytest
from searched import Board, searched

from joulewise.metrics.rules import parse
from joulewise.search.adaptive import BUDGET


@pytest.mark.parametrize("metric", ["energy", "edp", "eds:2.0", "ed2p"])
def test_it_finds_what_is_best_and_says_so(metric):
    board = Board(noise=0.005)
    strategy, trials = searched(board, metric)
    said = strategy.sure["metrics"][parse(metric).name]
    assert board.loss(said["settings"], metric) <= 0.01
    assert said["sure"]
    assert said["tolerance"] == 0.01
    assert len(trials) == strategy.sure["runs"] <= BUDGET
    assert strategy.left == 0

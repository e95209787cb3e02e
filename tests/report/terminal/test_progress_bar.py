"""The bar of a sweep tells in one line what there is room for."""

import io
from itertools import pairwise

import pytest
from rich.console import Console

from joulewise.report.terminal.progress import NOTHING, bar, line

SETTINGS = "150 W, batch_size 64; 225 W, batch_size 64"
RUNS = "150 W, batch_size 64 (repetition 1); 225 W, batch_size 64 (repetition 2)"
BEST = "best by energy: 150 W"
LEFT = "3 min 20 s left"


@pytest.mark.parametrize(
    ("room", "said"),
    [
        (200, f"{RUNS} {BEST} {LEFT}"),
        (80, f"150 W, batch_size 64 (repetition 1); 225 … {BEST} {LEFT}"),
        (50, f"150 W, batc… {BEST} {LEFT}"),
        (49, f"150 W, batch_size 64; 225 W, bat… {LEFT}"),
        (20, LEFT),
    ],
)
def test_what_has_no_room_is_said_shorter_or_not(room, said):
    result = line(SETTINGS, RUNS, BEST, LEFT, room).plain
    assert result == said
    assert len(result) <= room


@pytest.mark.parametrize("width", [40, 80, 120])
def test_it_is_one_line(width):
    console = Console(file=io.StringIO(), width=width, force_terminal=True)
    progress = bar(console)
    progress.add_task("", total=12, completed=4, **{**NOTHING, "settings": SETTINGS, "runs": RUNS})
    lines = console.render_lines(progress.get_renderable(), pad=False)
    assert len(lines) == 1
    assert "4/12" in "".join(segment.text for segment in lines[0])


@pytest.mark.parametrize(
    ("left_s", "said"), [(9, "9 s left"), (42, "42 s left"), (75, "1 min 15 s")]
)
def test_seconds_that_are_left_are_whole(left_s, said, monkeypatch):
    monkeypatch.setattr("time.monotonic", lambda: 100.0)
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    progress = bar(console)
    progress.add_task("", total=12, **{**NOTHING, "end_s": 100.0 + left_s})
    (shown,) = console.render_lines(progress.get_renderable(), pad=False)
    assert said in "".join(segment.text for segment in shown)


def test_with_less_room_nothing_gets_longer():
    lengths = [len(line(SETTINGS, RUNS, BEST, LEFT, room).plain) for room in range(20, 150)]
    assert all(length <= room for room, length in zip(range(20, 150), lengths, strict=True))
    assert any(one < other for one, other in pairwise(lengths))

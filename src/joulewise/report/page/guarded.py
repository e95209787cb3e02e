"""Figures if they can be had, and otherwise why not: a page is worth more than its figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from joulewise.errors import JoulewiseError
from joulewise.record.store import Skipped
from joulewise.report.charts.chart import Chart
from joulewise.report.figures import plain
from joulewise.report.page.page import Notice

_KEPT: Final = "the tables are from results that were kept"


def charts_or_why(
    make: Callable[[], tuple[Sequence[Chart], Sequence[Skipped]]],
) -> tuple[tuple[Chart, ...], tuple[Notice, ...]]:
    """``make`` has with the figures what they lack: runs that are damaged."""
    try:
        charts, skipped = make()
        said = (f"{one.path.name} is in no figure: {one.reason}" for one in skipped)
        return tuple(charts), tuple(Notice(plain(each), _KEPT) for each in said)
    except JoulewiseError as error:
        return (), (Notice(f"no figures: {plain(error.message)}", plain(error.hint)),)
    except Exception as error:  # noqa: BLE001  # a damaged trace fails in as many ways as it has bytes
        why = plain(f"{type(error).__name__}: {error}")
        return (), (Notice(f"no figures: what they show cannot be read ({why})", _KEPT),)

"""Figures if they can be had, and otherwise why not: a page is worth more than its figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from joulewise.errors import JoulewiseError
from joulewise.report.charts.chart import Chart
from joulewise.report.figures import plain
from joulewise.report.page.page import Notice

_KEPT: Final = "the tables are from results that were kept"


def charts_or_why(
    make: Callable[[], Sequence[Chart]],
) -> tuple[tuple[Chart, ...], tuple[Notice, ...]]:
    try:
        return tuple(make()), ()
    except JoulewiseError as error:
        return (), (Notice(f"no figures: {plain(error.message)}", plain(error.hint)),)
    except Exception as error:  # noqa: BLE001  # a damaged trace fails in as many ways as it has bytes
        why = plain(f"{type(error).__name__}: {error}")
        return (), (Notice(f"no figures: what they show cannot be read ({why})", _KEPT),)

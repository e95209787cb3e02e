"""The time axis that a run's figures share, with its epochs in the background."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from joulewise.report.charts.axes import Unit

if TYPE_CHECKING:
    import altair as alt

_MOST_EPOCHS: Final = 60  # more are hairlines
_MOST_NUMBERS: Final = 15


def timed(chart: alt.Chart, unit: Unit) -> Any:
    """With ``time`` in a unit that is easy to read, from the records' ``t_s``."""
    return chart.transform_calculate(time=unit.expression("t_s"))


def time_axis(unit: Unit, *, bare: bool = False) -> alt.X:
    """``bare`` is what stands above another with the same axis."""
    import altair as alt

    drawn = alt.Axis(title=f"time ({unit.name})", tickCount=8)
    if bare:
        drawn = alt.Axis(title=None, labels=False, ticks=False, tickCount=8)
    return alt.X("time:Q").axis(drawn).scale(nice=False, domainMin=0)


def banded(base: Any, x: alt.X, mean: alt.Y, low: alt.Y, high: str, *, lone: bool) -> list[Any]:
    """The mean with a band from the lowest to the highest; a lone reading is a point with a bar."""
    if lone:
        return [
            base.mark_rule(style="interval").encode(x=x, y=low, y2=high),
            base.mark_point(style="mean").encode(x=x, y=mean),
        ]
    return [
        base.mark_area(style="band").encode(x=x, y=low, y2=high),
        base.mark_line().encode(x=x, y=mean),
    ]


def are_shaded(epochs: int) -> bool:
    """Whether so many can be told apart, and there is more than one."""
    return 1 < epochs <= _MOST_EPOCHS


def epoch_bands(epochs: int, unit: Unit, x: alt.X) -> list[Any]:
    """Every other epoch shaded, from the table ``epochs``."""
    if not are_shaded(epochs):
        return []
    return [_odd_epochs(unit).mark_rect(style="stretch").encode(x=x, x2="until:Q")]


def epoch_numbers(epochs: int, unit: Unit) -> list[Any]:
    """Where there is room for them."""
    import altair as alt

    if not 1 < epochs <= _MOST_NUMBERS:
        return []
    numbers = _odd_epochs(unit).mark_text(style="note", align="left", baseline="top", dx=3, dy=2)
    return [numbers.encode(x=time_axis(unit), y=alt.value(0), text="label:N")]


def _odd_epochs(unit: Unit) -> Any:
    import altair as alt

    data = alt.Chart(alt.NamedData("epochs")).transform_filter("datum.epoch % 2 == 1")
    return data.transform_calculate(
        time=unit.expression("start_s"),
        until=unit.expression("end_s"),
        label="'epoch ' + datum.epoch",
    )

"""Words for settings, boundaries, numbers of runs, ratios and their intervals."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Final

from joulewise.data.sweeps import (
    CPU_LIMIT,
    MEM_CLOCK,
    POWER_LIMIT,
    SM_CLOCK,
    RunCounts,
    Setting,
    Value,
    is_one_control,
)
from joulewise.formatting import one_line, within
from joulewise.metrics.result import Interval, ParabolaFit

AXES: Final = {
    POWER_LIMIT: ("limit", "W"),
    SM_CLOCK: ("SM clock", "MHz"),
    MEM_CLOCK: ("memory clock", "MHz"),
    CPU_LIMIT: ("CPU limit", "W"),
}
"""What the controls of a device are called, and their units."""

BOUNDARY_NAMES: Final = {"gpu": "GPU", "node": "node", "wall": "wall"}
"""What system boundaries are called."""

_PARTS: Final = {"gpu": "GPU", "rest": "CPU and memory"}
"""What the parts of a run's energy are called."""

# Characters of a value and of a whole setting before they are cut off (chosen: a table with one
# long value, and a sentence with one long setting, fit in 120 columns). Doubled, they may wrap.
_LONGEST: Final = 40
_LONGEST_SETTING: Final = 120


def setting_words(setting: Setting) -> str:
    """``150 W, SM 1200 MHz, batch_size 32``: a setting in one line."""
    return one_line(str(setting), _LONGEST_SETTING)


def value_words(name: str, value: Value) -> str:
    """The value of one axis without its name, for a column that has a heading."""
    if name not in AXES:
        return one_line(str(value), _LONGEST)
    return "unlocked" if value is None else f"{value:g}"


def simulated_words(parts: Collection[str]) -> str:
    """``GPU simulated``, from the simulated parts of a sweep's energy; empty if there are none."""
    names = [name for part, name in _PARTS.items() if part in parts]
    return f"{', '.join(names)} simulated" if names else ""


def boundary_words(boundary: str, source: str, per: str) -> str:
    """``System boundary: GPU (measured)``, with what figures are per unless that is a run."""
    name = BOUNDARY_NAMES[boundary]
    sources = f" ({source.removeprefix(f'{name} ')})" if source else ""
    return f"System boundary: {name}{sources}" + ("" if per == "run" else f"; figures per {per}")


def counted(number: int, what: str) -> str:
    """``1 run``, ``3 runs``."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def fit_quality(fit: ParabolaFit) -> str:
    """``R² = 0.918 for the means, 0.632 for single runs``; empty with too few limits for it."""
    if fit.r2 is None or fit.means_r2 is None:
        return ""
    return f"R² {_r2(fit.means_r2)} for the means, {_r2(fit.r2).removeprefix('= ')} for single runs"


def _r2(r2: float) -> str:
    """To three decimals; only a perfect fit is rounded to 1."""
    return "> 0.999" if 0.9995 <= r2 < 1 else f"= {r2:.3f}"


def runs_words(counts: RunCounts) -> str:
    """``7 runs and 25 short trials, 2 stopped early``, without what there is none of."""
    also = f" and {counted(counts.looks, 'short trial')}" if counts.looks else ""
    rest = ((counts.stopped, "stopped early"), (counts.failed, "failed"))
    others = "".join(f", {number} {what}" for number, what in rest if number)
    return f"{counted(counts.whole, 'run')}{also}{others}"


def runs_planned(points: Sequence[Setting], number: int, *, is_search: bool) -> str:
    """``12 runs``; for a search, which may need fewer, ``at most 36 runs and short trials``."""
    if not is_search:
        return counted(number, "run")
    if is_one_control(points):
        return f"at most {counted(number, 'run')}"
    return f"at most {number} runs and short trials"


def settings_counted(settings: Collection[Setting], reference: Setting) -> str:
    """``7 settings``, and the reference where it is not one of them."""
    beside = "" if reference in settings else " and the reference"
    return f"{counted(len(settings), 'setting')}{beside}"


def change(ratio: Interval | None) -> str | None:
    """A ratio as a change in percent, with its interval; None where it is not known.

    ``-26.4 % ± 0.3`` where the interval is about symmetric, ``-17.1 % [-24.8, -13.0]`` where it
    is not, and ``8.1 times [1.3, 53]`` where a percentage would be in hundreds.
    """
    if ratio is None:
        return None
    if not math.isfinite(ratio.mean):
        return "ruled out"
    if _is_factor(ratio):
        return f"{_times(ratio.mean)}{_factors(ratio, ' [{}, {}]')}"
    mean = _percent(ratio.mean)
    if ratio.low is None or ratio.high is None:
        return f"{_rounded(mean, 1):+.1f} %"
    decimals = _decimals(ratio)
    mean = _rounded(mean, decimals)
    half = _symmetric(ratio, decimals)
    if half is not None:
        return f"{mean:+.{decimals}f} % ± {half}"
    low, high = _percent(ratio.low), _percent(ratio.high)
    return f"{mean:+.{decimals}f} % [{low:+.{decimals}f}, {high:+.{decimals}f}]"


def _rounded(percent: float, decimals: int) -> float:
    """Rounded, without the sign of a zero: ``-0.0 %`` would not be a change."""
    return round(percent, decimals) + 0.0


def describe_ratios(ratios: Sequence[tuple[Interval | None, str, str]], other: str) -> str:
    """Ratios to ``other`` as part of a sentence, each with its quantity and a note.

    ``12.3 ± 1.1 % less energy and 3.0 % more time than A``; ``8.1 times the energy of A (1.3 to
    53)``. Empty where no ratio is known.
    """
    known = [(ratio, what, note) for ratio, what, note in ratios if ratio is not None]
    # "less energy and 8.1 times the time than A" is no English: each gets its own comparison.
    if any(_is_factor(ratio) for ratio, _, _ in known):
        return " and ".join(_against(ratio, what, other, note) for ratio, what, note in known)
    words = " and ".join(_share(ratio, what, note) for ratio, what, note in known)
    return f"{words} than {other}" if words else ""


def _against(ratio: Interval, what: str, other: str, note: str) -> str:
    if not _is_factor(ratio):
        return f"{_share(ratio, what, note)} than {other}"
    of = f"{_times(ratio.mean)} the {what} of {other}"
    return of + _bracketed(_factors(ratio, "{} to {}"), note)


def _bracketed(*parts: str) -> str:
    """The parts that are not empty, in one pair of brackets; empty if all are."""
    known = ", ".join(filter(None, parts))
    return f" ({known})" if known else ""


def _share(ratio: Interval, what: str, note: str) -> str:
    mean = _percent(ratio.mean)
    word = "less" if ratio.mean < 1 else "more"
    if ratio.low is None or ratio.high is None:
        share = f"{abs(mean):.1f} %" if round(abs(mean), 1) else "under 0.1 %"
        return f"{share} {word} {what}{_bracketed(note)}"
    decimals = _decimals(ratio)
    half = _symmetric(ratio, decimals)
    if half is not None:
        return f"{abs(mean):.{decimals}f} ± {half} % {word} {what}{_bracketed(note)}"
    low, high = _percent(ratio.low), _percent(ratio.high)
    if (low < 0) == (high < 0):
        near, far = sorted((abs(low), abs(high)))
        bounds = f"{near:.{decimals}f} to {far:.{decimals}f} %"
    else:
        bounds = f"{-low:.{decimals}f} % less to {high:.{decimals}f} % more"
    return f"{abs(mean):.{decimals}f} % {word} {what}{_bracketed(bounds, note)}"


# From such a mean, or such an upper bound, on, a ratio is written in times (chosen): "200 % more"
# is misread by many as twice as much. Doubled, "+250 %" would be written.
_FACTOR_MEAN: Final = 2.0
_FACTOR_HIGH: Final = 3.0
# From so many times the mean on, an error is written in times (chosen).
_ERROR_FACTOR: Final = 10.0
# Bounds beyond so many times, or one over it, are not written exactly (chosen): those of very short
# runs may have 50 digits, which say nothing more.
_FAR: Final = 1000.0
# Decimals of a percentage at most (chosen): finer differences are never of interest.
_MOST_DECIMALS: Final = 4
# How much narrower one half of an interval may be, relative or in percent of the reference, for
# both to be written as one, the wider (chosen). Doubled, -28 to -19 % around -24 % would be ± 5.
_ASYMMETRY: Final = 0.1
_ASYMMETRY_PERCENT: Final = 0.5


def _is_factor(ratio: Interval) -> bool:
    return ratio.mean >= _FACTOR_MEAN or (ratio.high or 0.0) >= _FACTOR_HIGH


def _times(value: float) -> str:
    return f"{_two_digits(value)} times"


def _factors(ratio: Interval, form: str) -> str:
    if ratio.low is None or ratio.high is None:
        return ""
    low, high = _bound(ratio.low), _bound(ratio.high)
    # A bound above 1 is not rounded to 1, which would read as no difference.
    if ratio.low > 1 and float(_two_digits(ratio.low)) <= 1:
        low = f"{ratio.low:.{_MOST_DECIMALS}f}"
    return form.format(low, high)


def _bound(value: float) -> str:
    if 0 < value < 1 / _FAR:
        return f"<{1 / _FAR:g}"
    return f">{_FAR:g}" if value > _FAR else _two_digits(value)


def _two_digits(value: float) -> str:
    """Two significant digits, or as many as the integer has; never an exponent."""
    if value >= 9.95 or value <= 0:
        return f"{value:.0f}"
    decimals = 1 - math.floor(math.log10(value))
    return f"{value:.{decimals}f}"


def _percent(ratio: float) -> float:
    return 100 * (ratio - 1)


def _decimals(ratio: Interval) -> int:
    """So many decimals that rounding never moves 0 into an interval that excludes it."""
    near = _distance(ratio)
    wanted = (decimals for decimals in range(1, _MOST_DECIMALS) if round(near, decimals) > 0)
    return 1 if near <= 0 else next(wanted, _MOST_DECIMALS)


def _symmetric(ratio: Interval, decimals: int) -> str | None:
    """The half-width of an interval that is about symmetric, rounded up to its wider half.

    None where it is not symmetric, or where rounding would move 0 into it.
    """
    halves = [abs(_percent(it or 0.0) - _percent(ratio.mean)) for it in (ratio.low, ratio.high)]
    narrow, wide = (round(it, decimals) for it in sorted(halves))
    if wide - narrow > max(_ASYMMETRY * wide, _ASYMMETRY_PERCENT):
        return None
    if _distance(ratio) > 0 and round(abs(_percent(ratio.mean)), decimals) <= wide:
        return None
    return f"{wide:.{decimals}f}"


def _distance(ratio: Interval) -> float:
    """How far the interval lies from no change, in percent; 0 if it includes it."""
    low, high = _percent(ratio.low or 0.0), _percent(ratio.high or 0.0)
    return 0.0 if low <= 0 <= high else min(abs(low), abs(high))


def error_words(interval: Interval) -> str | None:
    """The error of a mean: ``± 4.9 %``, ``-74 to +279 %`` or ``0.048 to 21 times`` of it.

    None where there are too few runs for an interval.
    """
    half = half_width(interval)
    if half is None or interval.low is None or interval.high is None:
        return None
    down, up = interval.mean - interval.low, interval.high - interval.mean
    if interval.mean <= 0 or abs(up - down) <= _ASYMMETRY * half:
        return within(half, interval.mean)
    if interval.high >= _ERROR_FACTOR * interval.mean:
        return _factors(
            Interval(1.0, interval.low / interval.mean, interval.high / interval.mean),
            "{} to {} times",
        )
    return f"-{100 * down / interval.mean:.0f} to +{100 * up / interval.mean:.0f} %"


def half_width(interval: Interval) -> float | None:
    """The wider half of an interval; None without one."""
    if interval.low is None or interval.high is None:
        return None
    return max(interval.high - interval.mean, interval.mean - interval.low)

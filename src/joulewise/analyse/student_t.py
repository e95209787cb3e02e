"""Quantiles of Student's t distribution.

scipy has them too, and takes half a second to import: as long as a whole sweep in virtual time may
spend on forty of its runs.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from joulewise.analyse.chunks import Floats

# Points of the trapezoidal rule. With twice as many, quantiles change by less than 1e-6 of
# themselves.
_POINTS: Final = 8193
# Degrees of freedom from which on the quantile is that of the normal distribution within 1e-4.
_NORMAL_DOF: Final = 10_000.0
_TWO_SIDED_95: Final = 0.975
# A quantile is a smooth function of 1/dof: 64 linear pieces from 2 degrees up are within 2e-4.
_TABLE_INVERSE_DOF: Final = np.linspace(0.0, 0.5, 65)


def t_quantile(dof: ArrayLike, p: float) -> Floats:
    """The value below which the share ``p`` (at least 0.5) lies; NaN where ``dof`` is less than 1.

    Each distinct number of degrees of freedom is integrated once.
    """
    given = np.asarray(dof, float)
    values, places = np.unique(given, return_inverse=True)
    quantiles = np.array([_integrate(value, p) if value >= 1 else np.nan for value in values])
    return np.asarray(quantiles[places].reshape(given.shape))


def student(dof: ArrayLike) -> Floats:
    """The half-width of a 95 % interval in standard errors; NaN where ``dof`` is less than 1."""
    return t_quantile(dof, _TWO_SIDED_95)


def student_of_many(dof: Floats) -> Floats:
    """The same for many different numbers of 2 or more, by linear interpolation in 1/dof."""
    return np.interp(1 / dof, _TABLE_INVERSE_DOF, _table())


@cache
def _table() -> Floats:
    with np.errstate(divide="ignore"):
        return student(1 / _TABLE_INVERSE_DOF)


@cache
def _integrate(dof: float, p: float) -> float:
    """With t = √dof · tan θ the density is proportional to cosᵈᵒᶠ⁻¹ θ, from 0 to a right angle."""
    dof = min(dof, _NORMAL_DOF)
    angles = np.linspace(0, math.pi / 2, _POINTS)
    density = np.cos(angles) ** (dof - 1)
    mass = np.append(0.0, np.cumsum((density[1:] + density[:-1]) / 2))
    angle = float(np.interp((2 * p - 1) * mass[-1], mass, angles))
    return math.sqrt(dof) * math.tan(angle)

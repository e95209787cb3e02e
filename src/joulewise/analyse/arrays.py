"""Names for the kinds of numpy array that signatures of the analysis use."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Indices = NDArray[np.intp]
Bools = NDArray[np.bool_]
Array = NDArray[Any]
"""Of any type: columns are read in the type in which they were recorded."""

"""Conformance suites: whoever writes a device subclasses one test case. Needs pytest."""

from __future__ import annotations

import pytest

# Before the import below, so that a failed check shows the values it compared.
pytest.register_assert_rewrite("joulewise.testing.devices")

from joulewise.testing.devices import DeviceConformance  # noqa: E402
from joulewise.testing.toy_device import ToyClock, ToyDevice  # noqa: E402

__all__ = ["DeviceConformance", "ToyClock", "ToyDevice"]

"""Conformance suites: whoever writes a device or a policy subclasses one test case. Needs pytest.

- ``devices``: what the device protocol promises, as tests
- ``toy_device``: the smallest device that passes them, as an example
- ``recurring_policies``: what a policy of a recurring job promises, as tests
"""

from __future__ import annotations

import pytest

# Before the import below, so that a failed check shows the values it compared.
pytest.register_assert_rewrite("joulewise.testing.devices", "joulewise.testing.recurring_policies")

from joulewise.testing.devices import DeviceConformance  # noqa: E402
from joulewise.testing.recurring_policies import RecurringPolicyConformance  # noqa: E402
from joulewise.testing.toy_device import ToyClock, ToyDevice  # noqa: E402

__all__ = ["DeviceConformance", "RecurringPolicyConformance", "ToyClock", "ToyDevice"]

"""Everything that needs an entry for each kind of device has one: a new `Kind` fails here first."""

from types import SimpleNamespace

import pytest

from joulewise import formatting
from joulewise.compare.conditions import parse_condition
from joulewise.data import Kind
from joulewise.record.sensor_profiles import documented_profile
from joulewise.testing import DeviceConformance
from tests.helpers.run_directories import device as recorded_device


@pytest.mark.parametrize("kind", Kind)
class TestEveryKind:
    def test_has_an_assumed_calibration_error(self, kind):
        some = SimpleNamespace(info=SimpleNamespace(kind=kind), sensors={})
        assert 0 < documented_profile(some).gain_sigma < 1

    def test_has_a_name_for_people(self, kind):
        assert formatting.KINDS[kind]

    def test_can_be_a_condition_of_a_comparison(self, kind):
        assert parse_condition(f"{kind.value}0>+5%").quantity == f"{kind.value}0"

    def test_may_be_contained_in_another_device(self, kind):
        key = "gpu99" if kind is not Kind.GPU else "cpu99"
        container = SimpleNamespace(info=SimpleNamespace(key=key, contains=(f"{kind.value}0",)))
        DeviceConformance().test_contains_other_devices_only(container)

    def test_can_be_recorded_in_a_test(self, kind):
        assert recorded_device(f"{kind.value}0").info.kind is kind

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise import formatting
from joulewise.data import ControlKind, Quantity


@pytest.mark.parametrize(
    ("quantity", "value", "said"),
    [
        (Quantity.POWER, 43.52, "43.5 W"),
        (Quantity.POWER, 4.25, "4.25 W"),
        (Quantity.POWER, 139.4, "139 W"),
        (Quantity.ENERGY, 0, "0 J"),
        (Quantity.ENERGY, 1250, "1.25 kJ"),
        (Quantity.ENERGY, 3.6e6, "3.6 MJ"),
        (Quantity.MEMORY_USED, 283_115_520, "270 MiB"),
        (Quantity.TEMPERATURE, 41, "41 °C"),
        (Quantity.GPU_UTILISATION, 99.97, "100 %"),
        (Quantity.SM_CLOCK, 1530, "1530 MHz"),
        (Quantity.PCIE_TX, 12, "12 MB/s"),
        (Quantity.PERFORMANCE_STATE, 8, "P8"),
    ],
)
def test_a_figure_has_its_unit(quantity, value, said):
    assert formatting.figure(quantity, value) == said


def test_throttle_bits_are_named_where_they_have_names():
    assert formatting.figure(Quantity.THROTTLE, 0, "nvidia") == "nothing"
    assert formatting.figure(Quantity.THROTTLE, 5, "nvidia") == "idle, power cap"
    assert formatting.figure(Quantity.THROTTLE, 1, "AMD") == "1"
    assert formatting.span(Quantity.THROTTLE, [0, 4, 0], "nvidia") == "nothing, power cap"


def test_several_devices_are_a_range():
    assert formatting.span(Quantity.POWER, [30, 47.5, 40]) == "30-47.5 W"
    assert formatting.span(Quantity.POWER, [30, 30.001]) == "30 W"
    assert formatting.span(Quantity.ENERGY, [900, 1200]) == "900 J - 1.2 kJ"
    assert formatting.span(Quantity.PERFORMANCE_STATE, [0, 8]) == "P0 - P8"


def test_a_control_says_how_many_steps_it_has():
    clocks = [135.0, 142.0, 1530.0]
    assert formatting.settings(ControlKind.SM_CLOCK, 135, 1530, clocks) == "135-1530 MHz, 3 steps"
    assert formatting.settings(ControlKind.POWER_LIMIT, 150, 300, None) == "150-300 W"


@pytest.mark.parametrize(
    ("seconds", "said"), [(None, "-"), (0.02, "20 ms"), (1, "1 s"), (6e-5, "60 µs")]
)
def test_a_duration(seconds, said):
    assert formatting.duration(seconds) == said


@given(st.floats(min_value=0.01, max_value=1e14))
def test_a_prefix_keeps_the_value(joules):
    number, unit = formatting.with_unit(joules, "J").split(" ")
    factor = {"J": 1, "kJ": 1e3, "MJ": 1e6, "GJ": 1e9, "TJ": 1e12}[unit]
    assert float(number) * factor == pytest.approx(joules, rel=0.06, abs=0.006)


def test_every_sensor_and_control_has_a_name_and_a_place():
    grouped = [quantity for _, members in formatting.GROUPS for quantity in members]
    assert sorted(grouped) == sorted(formatting.SENSORS) == sorted(Quantity)
    assert set(formatting.CONTROLS) == set(ControlKind)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["gpu0", "gpu1"], "GPU simulated"),
        (["n1/gpu0", "n1/cpu0"], "GPU and CPU simulated"),
        (["nvidia"], "GPU simulated"),  # a driver that never answered: nobody knows which GPUs
        ([], ""),
    ],
)
def test_simulated_devices_by_their_kinds(keys, said):
    assert formatting.simulated(keys) == said

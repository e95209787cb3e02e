"""Every fault in mid-run that hides readings has its warning, and a wider error."""

from dataclasses import replace

import numpy as np
import pytest

from joulewise.analyse.device_energy import FaultTime
from joulewise.analyse.run_result import analyse
from joulewise.data import WarningCode
from joulewise.store.layout import StreamKind
from tests.helpers.run_directories import PID, START, MadeRun, S, device

FROM_S, TO_S = 4.0, 5.2


def hidden(*names, from_s=FROM_S, to_s=TO_S):
    def fault(t_s, lanes):
        for name in names:
            lanes[name] = np.where((t_s >= from_s) & (t_s < to_s), np.nan, lanes[name])

    return fault


def hang(t_s, lanes):
    answered = (t_s < FROM_S) | (t_s >= TO_S)
    lanes |= {name: column[answered] for name, column in lanes.items()}


def stuck(t_s, lanes):
    within = (t_s >= FROM_S) & (t_s < TO_S)
    lanes["power_w"] = np.where(within, lanes["power_w"][within][0], lanes["power_w"])


def back_by(joules):
    def fault(t_s, lanes):
        at = lanes["energy_j"][t_s >= FROM_S][0]
        drop_j = min(joules, at)
        lanes["energy_j"] = np.where(t_s >= FROM_S, lanes["energy_j"] - drop_j, lanes["energy_j"])

    return fault


FAULTS = {
    "lost": (hidden("power_w", "energy_j"), WarningCode.GAP),
    "call=GetPowerUsage": (hidden("power_w"), WarningCode.GAP),
    "call=GetTotalEnergyConsumption, counter-unsupported": (hidden("energy_j"), WarningCode.GAP),
    "slow, or a driver that hangs": (hang, WarningCode.GAP),
    "stuck": (stuck, WarningCode.STUCK),
    "counter-reset": (back_by(np.inf), WarningCode.COUNTER_RESET),
    "counter-backwards": (back_by(50), WarningCode.COUNTER_RESET),
}


def analysed(path, fault=None, *, samples, spans=(), hz=20.0):
    """Ten seconds at 200 W, polled, and with the driver's own samples or without them."""
    made = MadeRun(path, hz=hz).processes("gpu0", (-1, []), (0.2, [(PID, "python", True)]))
    made.devices.append(device("gpu0"))
    noise = np.random.default_rng(0)
    t_s = made.times_s(hz)
    power_w = 200 + noise.normal(0, 2, len(t_s))
    joules = 5_000 + np.cumsum(power_w) / hz
    lanes = {"t_ns": ns(t_s), "power_w": power_w, "energy_j": joules}
    if fault:
        fault(t_s, lanes)
    made.lane("gpu0", StreamKind.FAST, lanes)
    if samples:
        t_s = made.times_s(50)
        sampled = {"power_w": 200 + noise.normal(0, 2, len(t_s))}
        if fault is stuck:  # the driver's samples are those of the same sensor
            fault(t_s, sampled)
        made.lane("gpu0", StreamKind.BUFFER, {"t_ns": ns(t_s), **sampled})
    return analyse(made.spans(*spans).write())


def ns(t_s):
    return START + np.round(t_s * S).astype(np.int64)


@pytest.mark.parametrize("samples", [True, False], ids=["samples", "polls"])
@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_is_warned_of_and_widens_the_error(tmp_path, kind, samples):
    fault, code = FAULTS[kind]
    whole = analysed(tmp_path / "whole", samples=samples)
    faulty = analysed(tmp_path / "faulty", fault, samples=samples)
    assert whole.warnings == ()
    assert [warning.code for warning in faulty.warnings] == [code]
    before, after = (result.run.devices["gpu0"].energy for result in (whole, faulty))
    least_j = 0.01 * 200 * (TO_S - FROM_S if code is not WarningCode.COUNTER_RESET else 0.05)
    assert after.error_sampling >= np.hypot(before.error_sampling, 0.8 * least_j)
    assert abs(after.value - before.value) < after.error


@pytest.mark.parametrize("kind", ["lost", "slow, or a driver that hangs"])
@pytest.mark.parametrize("samples", [True, False], ids=["samples", "polls"])
def test_a_gap_is_located_at_its_start(tmp_path, kind, samples):
    (warning,) = analysed(tmp_path / "run", FAULTS[kind][0], samples=samples).warnings
    assert "1.2 s of 10.0 s, first about 4 s after the start" in warning.message


def test_a_span_beside_the_fault_is_as_firm_as_ever(tmp_path):
    whole, faulty = (
        analysed(tmp_path / name, fault, samples=True, spans=[("epoch", 0, 6, 9)])
        for name, fault in (("whole", None), ("faulty", FAULTS["lost"][0]))
    )
    (before,), (after,) = whole.spans, faulty.spans
    # The noise that a trace shows is judged without the fault: a little less of it, or none more.
    share = after.total.error_sampling / before.total.error_sampling
    assert 0.8 < share < 1.05


@pytest.mark.parametrize("lost_s", [1, 4, 8])
def test_what_a_gpu_drew_before_it_was_lost_is_a_lower_bound(tmp_path, lost_s):
    lost = hidden("power_w", "energy_j", from_s=lost_s, to_s=99)
    spans = [("epoch", 0, 0.1, 0.8), ("epoch", 1, 8.5, 9.5)]
    result = analysed(tmp_path / "run", lost, samples=False, spans=spans)
    energy = result.run.devices["gpu0"].energy
    assert energy.at_least
    assert energy.value == pytest.approx(200 * lost_s, abs=energy.error + 20)
    assert energy.value + energy.error_sampling < 200 * lost_s + 10
    assert result.run.total == energy
    assert result.missing == ()
    (warning,) = (each for each in result.warnings if each.code is WarningCode.UNAVAILABLE)
    assert warning.device == "gpu0"
    before, after = result.spans
    assert not before.total.at_least
    assert after.total is None


def test_a_device_that_was_read_at_no_time_has_no_energy(tmp_path):
    lost = hidden("power_w", "energy_j", from_s=-9, to_s=99)
    result = analysed(tmp_path / "run", lost, samples=False)
    assert result.run.devices["gpu0"].energy is result.run.total is None
    assert result.missing == result.counted == ("gpu0",)
    assert [warning.code for warning in result.warnings] == [WarningCode.UNAVAILABLE]


def test_a_counter_that_bridges_most_of_the_run_has_its_energy(tmp_path):
    lost = hidden("power_w", "energy_j", from_s=1, to_s=8)
    energy = analysed(tmp_path / "run", lost, samples=False).run.devices["gpu0"].energy
    assert energy.value == pytest.approx(2000, abs=energy.error)


def test_the_total_of_an_unread_span_is_a_lower_bound(tmp_path):
    made = MadeRun(tmp_path / "run").processes("gpu0", (-1, []), (0.2, [(PID, "python", True)]))
    made.fast(device("gpu0", measured=("power_w",)), lambda t: 200 + t % 3, lost=[(6, 9)])
    made.fast(device("cpu0"), lambda _: 20)
    seen, unseen = analyse(made.spans(("epoch", 0, 1, 4), ("epoch", 1, 6.1, 8.9)).write()).spans
    assert seen.total.value == pytest.approx(3 * 221, rel=0.05)
    assert unseen.devices["gpu0"].energy is None
    assert unseen.total == replace(unseen.devices["cpu0"].energy, at_least=True)


@pytest.mark.parametrize(
    ("piece_s", "first_s"), [([0, 0.2, 0.5, 0.1], 0.8), ([0.5, 0.5], 0.0), ([0, 0.3, 0], 0.5)]
)
def test_a_lapse_began_where_its_first_piece_says(piece_s, first_s):
    starts_ns = np.arange(len(piece_s)) * S // 2
    fault = FaultTime(
        sum(piece_s), np.column_stack([starts_ns, starts_ns + S // 2]), np.array(piece_s)
    )
    assert fault.first_ns == first_s * S

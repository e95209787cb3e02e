"""Rows of readings: what could not be read, what took long, and their statistics."""

import math
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from joulewise.data import DeviceInfo, Kind, Quantity, Reading, SensorInfo, Source, Unavailable
from joulewise.record.readings import DeviceReader, fast_quantities, slow_quantities
from joulewise.record.statistics import StreamStatistics
from joulewise.record.writer import RecorderNotes
from joulewise.store.arrow_stream import EXTRA_NS, Batch, RowBuffer
from joulewise.testing.toy_device import ToyClock, ToyDevice

S, MS = 10**9, 10**6


@dataclass
class Meter:
    """Waits for its thread, takes its time, and fails when it is asked to."""

    clock: ToyClock = field(default_factory=ToyClock)
    waits_s: float = 0.0
    takes_s: float = 0.0
    fails: dict = field(default_factory=dict)
    info: DeviceInfo = field(default_factory=lambda: DeviceInfo("gpu0", Kind.GPU, "", "", ""))

    def read(self, quantity):
        self.clock.elapse(self.waits_s)
        t_ns = self.clock.now_ns
        self.clock.elapse(self.takes_s)
        if quantity in self.fails:
            return Unavailable(self.fails[quantity])
        return Reading(100.0 if quantity is Quantity.POWER else t_ns / 1e7, t_ns)


def readings(device, *quantities):
    notes = RecorderNotes(lambda: device.clock.now_ns)
    channel = DeviceReader(
        "gpu0", device, quantities, notes, period_ns=10 * MS, now_ns=lambda: device.clock.now_ns
    )
    return channel, notes


def columns(channel):
    batch = channel.rows.take()
    return dict(zip(batch.columns, (list(values) for values in batch.values), strict=True))


def test_a_row_has_the_time_at_which_the_counter_was_read():
    device = Meter(takes_s=0.0001)
    channel, _ = readings(device, Quantity.ENERGY, Quantity.POWER)
    channel.serve(device.clock.now_ns)
    assert columns(channel) == {"t_ns": [S], "energy_j": [100.0], "power_w": [100.0]}


def test_what_took_long_bears_the_middle_of_it():
    device = Meter(takes_s=0.5)
    channel, _ = readings(device, Quantity.ENERGY, Quantity.POWER)
    channel.serve(device.clock.now_ns)
    assert columns(channel)["t_ns"] == [S + S // 2]


def test_a_row_that_waited_to_be_read_comes_before_the_next():
    device = Meter(waits_s=0.2, takes_s=0.001)
    channel, _ = readings(device, Quantity.ENERGY)
    channel.serve(device.clock.now_ns)
    device.waits_s = 0.0
    channel.serve(device.clock.now_ns)
    assert columns(channel)["t_ns"] == [S + 200 * MS + MS // 2, S + 201 * MS]


def test_what_cannot_be_read_is_a_gap_and_noted_when_it_changes():
    device = Meter()
    channel, notes = readings(device, Quantity.ENERGY, Quantity.POWER)
    lost = {Quantity.ENERGY: "lost", Quantity.POWER: "lost"}
    for fails in ({}, {Quantity.POWER: "busy"}, lost, lost, {}):
        device.fails = fails
        device.clock.elapse(0.01)
        channel.serve(device.clock.now_ns)
    found = columns(channel)
    assert [math.isnan(value) for value in found["energy_j"]] == [False, False, True, True, False]
    assert [math.isnan(value) for value in found["power_w"]] == [False, True, True, True, False]
    assert found["t_ns"] == sorted(found["t_ns"])
    noted = [(note["code"], note["quantity"], note["message"]) for note in notes.all()]
    assert noted == [
        ("device_unavailable", "power_w", "busy"),
        ("device_unavailable", "energy_j", "lost"),
        ("device_unavailable", "power_w", "lost"),
        ("device_back", "energy_j", "it is read again"),
        ("device_back", "power_w", "it is read again"),
    ]
    assert all(note["device"] == "gpu0" for note in notes.all())


def test_what_a_device_lacks_is_not_read_and_what_is_slow_comes_last():
    device = ToyDevice(ToyClock())
    pcie = SensorInfo(Quantity.PCIE_TX, Source.MEASURED, slow=True)
    device.sensors = {Quantity.PCIE_TX: pcie, **device.sensors}
    assert fast_quantities(device) == (Quantity.ENERGY, Quantity.POWER)
    assert slow_quantities(device) == (Quantity.GPU_UTILISATION, Quantity.PCIE_TX)
    del device.sensors[Quantity.ENERGY]
    assert fast_quantities(device) == (Quantity.POWER,)


def batch_of(times_ns, powers_w, late_ns):
    rows = RowBuffer(["power_w"])
    for row in zip(times_ns, late_ns, powers_w, strict=True):
        rows.add(row[0], row[1], (row[2],))
    return rows.take()


def test_repeats_are_no_new_values():
    statistics = StreamStatistics(20 * MS, "power_w")
    powers = [1.0, 1.0, 2.0, math.nan, 2.0, 3.0]
    statistics.add(batch_of(range(S, S + 6 * 20 * MS, 20 * MS), powers, [0] * 6))
    assert statistics.summary()["rows"] == 6
    assert statistics.summary()["new_values"] == 3


def test_new_values_are_never_more_than_readings():
    statistics = StreamStatistics(400 * MS, "power_w")
    times = [S + 50 * MS, *range(S + 400 * MS, 3 * S, 400 * MS)]  # the first was late
    powers = [float(index) for index, _ in enumerate(times)]
    statistics.add(batch_of(times, powers, [0] * len(times)))
    assert statistics.summary()["effective_hz"] == 2.5


def test_the_first_value_is_no_change_of_a_drivers_samples():
    statistics = StreamStatistics(0, "power_w")
    statistics.add(batch_of([S, 2 * S, 3 * S], [1.0, 2.0, 3.0], [0, 0, 0]))
    assert statistics.summary()["effective_hz"] == 1


def test_dense_readings_at_the_edges_are_rows_and_no_matter_of_the_rate():
    statistics = StreamStatistics(100 * MS, "power_w")
    regular = list(range(S, 4 * S, 100 * MS))
    dense = [regular[0] + 5 * MS * index for index in range(1, 15)]
    after = [regular[-1] + 3 * MS + 5 * MS * index for index in range(10)]
    rows = sorted([(t_ns, 0) for t_ns in regular] + [(t_ns, EXTRA_NS) for t_ns in dense + after])
    powers = [float(index) for index, _ in enumerate(rows)]
    statistics.add(batch_of([t_ns for t_ns, _ in rows], powers, [late for _, late in rows]))
    summary = statistics.summary()
    assert summary["rows"] == summary["new_values"] == len(rows)
    assert (summary["effective_hz"], summary["rate_hz"], summary["rate_cv"]) == (10, 10, 0)
    assert summary["late_max_ms"] == 0


def test_the_rate_is_steady_where_rows_come_a_little_late():
    statistics = StreamStatistics(100 * MS, "power_w")
    late = [(index * 7919) % 40 * MS for index in range(101)]
    times = [S + index * 100 * MS + each for index, each in enumerate(late)]
    for start in range(0, 101, 10):
        part = slice(start, start + 10)
        powers = [float(index) for index in range(len(times[part]))]
        statistics.add(batch_of(times[part], powers, late[part]))
    summary = statistics.summary()
    assert summary["rate_hz"] == 10
    assert summary["rate_cv"] == 0
    assert summary["late_max_ms"] == max(late) / MS


def test_seconds_without_rows_count_as_such():
    statistics = StreamStatistics(100 * MS, "power_w")
    times = [*range(S, 3 * S, 100 * MS), *range(5 * S, 7 * S + 1, 100 * MS)]
    statistics.add(batch_of(times, [1.0] * len(times), [0] * len(times)))
    assert statistics.summary()["rate_cv"] > 0.5


def test_a_stream_with_a_gap_of_ages_is_counted_at_once():
    statistics = StreamStatistics(10**12 * S, "power_w")
    statistics.add(batch_of([S, 9 * 10**9 * S], [1.0, 1.0], [0, 0]))
    assert statistics.summary()["rate_hz"] == 0


@given(st.lists(st.integers(0, 90 * MS), min_size=1, max_size=500))
def test_percentiles_are_right_to_the_width_of_a_bin(late):
    statistics = StreamStatistics(10 * MS, "power_w")
    statistics.add(batch_of(range(len(late)), [1.0] * len(late), late))
    exact_ms = sorted(late)[max(0, math.ceil(0.99 * len(late)) - 1)] / MS
    assert exact_ms - 1e-4 <= statistics.summary()["late_p99_ms"] <= exact_ms + 0.0501


def test_nothing_recorded_says_nothing():
    summary = StreamStatistics(0, "power_w").summary()
    assert summary["rows"] == 0
    assert summary["rate_hz"] is None
    assert summary["late_p99_ms"] is None


def test_a_batch_with_a_single_gap_knows_it():
    gaps = Batch(("t_ns", "power_w"), batch_of([1, 2], [1.0, math.nan], [0, 0]).values)
    assert gaps.has_gaps()
    assert not batch_of([1], [1.0], [0]).has_gaps()

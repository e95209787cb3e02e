"""The driver's samples of all seven types: none lost, none twice, none requested in vain."""

import subprocess
import sys
import time
from dataclasses import dataclass, field

import numpy as np
import pytest

from joulewise.data import DeviceInfo, DriverSample, Kind, Quantity, Unavailable
from joulewise.record.driver_samples import OtherSamples
from joulewise.store.layout import BUFFERED_QUANTITIES, StreamKind, buffer_stream_kind
from joulewise.store.trace import open_device_stream
from tests.helpers.paths import ROOT

S = 10**9
EPOCH_NS = 1_750_000_000 * S


@dataclass
class SamplingDriver:
    """Keeps the last 120 samples, taken at a steady rate."""

    rate_hz: float = 6.0
    now_ns: int = 1000 * S
    booted_ns: int = 0
    broken: bool = False
    asked: int = 0
    info: DeviceInfo = field(default_factory=lambda: DeviceInfo("gpu0", Kind.GPU, "", "", ""))

    def samples(self, quantity, since_us=0):
        assert quantity is Quantity.SM_CLOCK
        self.asked += 1
        if self.broken:
            return Unavailable("no such samples")
        last = int(self.now_ns / S * self.rate_hz)
        first = max(last - 119, int(self.booted_ns / S * self.rate_hz) + 1)
        times_us = [self.stamp_us(number) for number in range(first, last + 1)]
        return [DriverSample(t_us, float(t_us)) for t_us in times_us if t_us > since_us]

    def stamp_us(self, number):
        return (EPOCH_NS + round(number / self.rate_hz * S)) // 1000


def channel_of(driver):
    return OtherSamples(
        "gpu0.buffer.sm_clock_mhz",
        driver,
        Quantity.SM_CLOCK,
        period_ns=S,
        now_ns=lambda: driver.now_ns,
        wall_ns=lambda: driver.now_ns + EPOCH_NS,
    )


def recorded_us(channel):
    batch = channel.rows.take()
    return [(t_ns + EPOCH_NS) // 1000 for t_ns in batch.values[0]] if batch else []


@pytest.mark.parametrize(
    ("rate_hz", "booted_s", "most_asked"),
    [(6.0, 0, 70), (50.0, 0, 602), (6.0, 998, 602), (1.0, 0, 70)],
    ids=["utilisation", "as often as power", "booted just now", "laptop"],
)
def test_ten_minutes_of_samples_none_dropped_none_doubled(rate_hz, booted_s, most_asked):
    driver = SamplingDriver(rate_hz, booted_ns=booted_s * S)
    channel, found = channel_of(driver), []
    began_ns = driver.now_ns
    for _ in range(600):
        channel.serve(driver.now_ns)
        found += recorded_us(channel)
        driver.now_ns += S
    channel.serve_extra()
    found += recorded_us(channel)
    first = max(int(began_ns / S * rate_hz) - 119, int(booted_s * rate_hz) + 1)
    last = int(driver.now_ns / S * rate_hz)
    assert found == [driver.stamp_us(number) for number in range(first, last + 1)]
    assert driver.asked <= most_asked


def test_a_type_that_the_driver_lacks_is_noted_and_not_requested_again():
    driver = SamplingDriver(broken=True)
    channel = channel_of(driver)
    for _ in range(5):
        channel.serve(driver.now_ns)
        driver.now_ns += S
    channel.serve_extra()
    assert driver.asked == 1
    assert channel.statistics.summary()["unavailable"] == "no such samples"
    assert channel.rows.take() is None


def test_a_fault_that_passes_is_no_lack():
    driver = SamplingDriver()
    channel = channel_of(driver)
    channel.serve(driver.now_ns)
    before = recorded_us(channel)
    driver.broken = True
    driver.now_ns += 10 * S
    channel.serve(driver.now_ns)
    assert channel.statistics.summary()["unavailable"]
    driver.broken = False
    driver.now_ns += 5 * S
    channel.serve_extra()
    assert "unavailable" not in channel.statistics.summary()
    after = recorded_us(channel)
    numbers = range((1000 * 6) - 119, int(driver.now_ns / S * 6) + 1)
    assert before + after == [driver.stamp_us(number) for number in numbers]


PROCESS = str(ROOT / "tests/helpers/recording_process.py")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A recording of a simulated V100 that trains."""
    run = tmp_path_factory.mktemp("store") / "run"
    (run / "trace").mkdir(parents=True)
    sim = [sys.executable, "-m", "joulewise", "sim", "--gpu", "v100", "--workload", "resnet50"]
    command = [*sim, "--", sys.executable, PROCESS, str(run), "10"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    time.sleep(5)  # so many samples are taken
    process.communicate()
    assert process.returncode == 0
    return run


@pytest.mark.parametrize("quantity", [Quantity.POWER, *BUFFERED_QUANTITIES])
def test_every_type_is_a_stream_of_its_own_in_order_of_time(run, quantity):
    reader = open_device_stream(run, "gpu0", buffer_stream_kind(quantity))
    assert reader.columns == ("t_ns", quantity.value)
    chunks = list(reader.chunks(["t_ns", quantity.value]))
    t_ns = np.concatenate([chunk["t_ns"] for chunk in chunks])
    values = np.concatenate([chunk[quantity.value] for chunk in chunks])
    steps_ns = np.diff(t_ns)
    assert (steps_ns > 0).all(), "doubled"
    assert steps_ns.max() < 1.9 * np.median(steps_ns), "dropped"
    assert np.ptp(t_ns) > 4 * S
    if quantity.value.endswith("_pct"):
        assert ((values >= 0) & (values <= 100)).all()
    else:
        assert (values > 20).all()


def test_streams_of_samples_are_named_for_their_quantity():
    assert buffer_stream_kind(Quantity.SM_CLOCK) is StreamKind.BUFFER_SM_CLOCK
    assert {buffer_stream_kind(quantity) for quantity in BUFFERED_QUANTITIES} | {
        StreamKind.BUFFER,
        StreamKind.FAST,
        StreamKind.SLOW,
    } == {*StreamKind}

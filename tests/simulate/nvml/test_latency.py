"""How long calls take: the drawn waits themselves, and that the shim draws the same."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.simulate.nvml.faults import NO_LATENCY, SLOT_NS, Latency, pcie_wait_ns
from joulewise.simulate.nvml.shared_memory import shim_path
from joulewise.units import NS_PER_MS, NS_PER_S
from tests.helpers.nvml_on_manual_clock import published, simulated

GPUS = 8
CALLS = 2 * GPUS  # transmitted and received
OTHERS_NS = 11 * NS_PER_MS  # of one loop, as measured: all but the throughput calls


def test_a_naive_loop_over_eight_v100s_runs_as_published():
    """2.045 Hz, sigma 0.317 Hz (Grzelka), from the waits of calls that follow each other."""
    latency = Latency()
    waits_ns = pcie_wait_ns(latency, 5, np.arange(20_000) * SLOT_NS)
    ends_ns = [0]
    while ends_ns[-1] < 19_999 * SLOT_NS:
        t_ns = ends_ns[-1] + OTHERS_NS
        for _ in range(CALLS):
            t_ns += latency.pcie_ns + int(waits_ns[t_ns // SLOT_NS])
        ends_ns.append(t_ns)
    rate_hz = NS_PER_S / np.diff(ends_ns)
    assert rate_hz.mean() == pytest.approx(2.045, rel=0.02)
    assert rate_hz.std() / rate_hz.mean() == pytest.approx(0.155, rel=0.05)


@given(st.integers(0, 2**63), st.integers(0, 10**18))
def test_calls_of_one_slot_wait_alike_and_never_for_less_than_nothing(seed, t_ns):
    first_ns = t_ns // SLOT_NS * SLOT_NS
    waits_ns = pcie_wait_ns(Latency(), seed, [first_ns, t_ns, first_ns + SLOT_NS - 1])
    assert len(set(waits_ns.tolist())) == 1
    assert waits_ns[0] >= 0


def test_without_latency_nothing_waits():
    assert not pcie_wait_ns(NO_LATENCY, 3, np.arange(100) * SLOT_NS).any()


def test_the_shim_draws_the_same_waits(monkeypatch, tmp_path):
    latency = Latency(0, 0, 0, 0, 0, pcie_wait_ns=11_200_000)
    with simulated(monkeypatch, tmp_path, "v100", "v100", latency=latency) as machine:
        drawn_ns = ctypes.CDLL(str(shim_path())).jw_pcie_wait_ns
        drawn_ns.argtypes, drawn_ns.restype = [ctypes.c_int64], ctypes.c_int64
        t_ns = np.arange(0, 4_000 * NS_PER_S, 777_777_777)
        expected = pcie_wait_ns(latency, machine.units[0].seed, t_ns)
        assert [drawn_ns(t) for t in t_ns.tolist()] == expected.tolist()


def test_only_the_throughput_call_waits(tmp_path):
    with published(tmp_path, "v100", latency=Latency()) as machine:
        header = machine.shared._header[0].copy()
    assert header["latency_ns"].tolist() == [2_000, 20_000, 200_000, 1_000_000, 20_000_000]
    assert header["pcie_wait_ns"] == 11_200_000

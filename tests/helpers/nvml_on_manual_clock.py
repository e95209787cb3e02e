"""The simulated NVML in this process, with a clock that stands until told to go."""

import ctypes
from contextlib import closing, contextmanager
from dataclasses import replace

import numpy as np
import pynvml

from joulewise.simulate.boards import load_board, make_unit
from joulewise.simulate.nvml import faults as faults_module
from joulewise.simulate.nvml.faults import NO_LATENCY
from joulewise.simulate.nvml.shared_memory import SharedGpuMemory, shim_path
from joulewise.simulate.timeline import PIECE, Timeline
from joulewise.units import NS_PER_S

START_NS = 1_000 * NS_PER_S


class Machine:
    """What the GPUs share with NVML, and the units behind them."""

    def __init__(self, shared, units):
        self.shared = shared
        self.units = units
        self.at(0)

    def at(self, seconds):
        """Set the clock to so many seconds after the start."""
        self.now_ns = START_NS + round(seconds * NS_PER_S)
        self.shared.freeze(self.now_ns)

    def draw(self, *levels, gpu=0):
        """Publish a power level (W) for each (seconds after the start, level)."""
        self.shared.publish(gpu, timeline(levels))

    def overflow(self, *, gpu=0):
        """Publish ten seconds of pieces, which are more than the ring holds; all of them."""
        levels = [(n / 2000, 300.0 - n / 100) for n in range(20_000)]
        whole = timeline(levels, sm_mhz=np.arange(20_000) // 20, busy=np.arange(20_000) / 20_000)
        for part in np.split(whole.pieces, 2):
            self.shared.publish(gpu, Timeline(part, int(part["t_ns"][-1])))
        return whole


def timeline(levels, **columns):
    pieces = np.zeros(len(levels), PIECE)
    pieces["t_ns"] = [START_NS + round(at_s * NS_PER_S) for at_s, _ in levels]
    pieces["power_w"] = [power_w for _, power_w in levels]
    lasting_s = np.diff(pieces["t_ns"]) * 1e-9
    pieces["energy_j"][1:] = np.cumsum(pieces["power_w"][:-1] * lasting_s)
    for name, values in columns.items():
        pieces[name] = values
    return Timeline(pieces, int(pieces["t_ns"][-1]))


@contextmanager
def simulated(monkeypatch, folder, *boards, **options):
    """A machine with NVML set up."""
    with published(folder, *boards, **options) as machine, client(monkeypatch, machine.shared.path):
        yield machine


@contextmanager
def published(folder, *boards, faults="", exact=True, latency=NO_LATENCY, socket="", as_root=True):
    """A machine that nobody looks at yet; ``exact`` takes all chance from its sensors."""
    units = [make_unit(load_board(key), seed) for seed, key in enumerate(boards)]
    if exact:
        units = [_exact(unit) for unit in units]
    shared = SharedGpuMemory.create(
        units,
        latency=latency,
        faults=faults_module.parse_faults(faults) if faults else (),
        start_ns=START_NS,
        folder=folder,
        socket_name=socket,
        as_root=as_root,
    )
    for gpu in range(len(units)):
        shared.publish(gpu, timeline([(-100, 100.0)]))
    with closing(shared):
        yield Machine(shared, units)


@contextmanager
def client(monkeypatch, path):
    """NVML in this process, over the shared memory at ``path``."""
    monkeypatch.setenv("JOULEWISE_SIM", path)
    monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(shim_path())))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    pynvml.nvmlInit()
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


def code_of(call, *arguments):
    """The NVML code that a call answers with."""
    try:
        call(*arguments)
    except pynvml.NVMLError as error:
        return error.value
    return pynvml.NVML_SUCCESS


def _exact(unit):
    """Its readings can be said in the head: ticks at whole 10 ms, and nothing late but the lag."""
    sensor = unit.board.sensor
    exact = replace(
        sensor,
        noise_w=0.0,
        quantum_w=0.001,
        counter_step_j=0.001,
        tick_jitter=0.0,
        period_s=round(sensor.period_s, 2),
        counter_period_s=round(sensor.counter_period_s, 2),
    )
    board = replace(unit.board, sensor=exact)
    return replace(
        unit, board=board, gain=1.0, sensor_phase_ns=0, counter_phase_ns=0, counter_lag_ns=0
    )


def handle(index):
    return pynvml.nvmlDeviceGetHandleByIndex(index)

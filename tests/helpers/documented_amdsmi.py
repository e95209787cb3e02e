"""An amdsmi whose answers are written from AMD's documentation of the library.

No AMD GPU was at hand: nothing here was recorded. Keys, units, the word "N/A" and the error codes
are those of the AMD SMI Python API reference (6.2 to 7.0) and of ``amdsmi_status_t``; the figures
are plausible ones for an Instinct MI210 (which tells its average power) and an MI300X (its
current power, no edge temperature, no fan). The two dies of an MI250 report as the kernel's driver
has it (commit 076f55a45e9e), and are linked as it tells (3f46c4e9ce25).
"""

from __future__ import annotations

from enum import IntEnum
from types import ModuleType

NOT_SUPPORTED, NO_PERM, DRIVER_NOT_LOADED, NOT_FOUND = 2, 10, 34, 31


class AmdSmiException(Exception):  # noqa: N818
    pass


class AmdSmiLibraryException(AmdSmiException):
    def __init__(self, err_code):
        super().__init__(err_code)
        self.err_code = err_code

    def __str__(self):
        return f"Error code:\n\t{self.err_code} | an error"


class AmdSmiClkType(IntEnum):
    GFX = 0
    MEM = 4


class AmdSmiTemperatureType(IntEnum):
    EDGE = 0
    HOTSPOT = 1


class AmdSmiTemperatureMetric(IntEnum):
    CURRENT = 0


class AmdSmiMemoryType(IntEnum):
    VRAM = 0


class AmdSmiDevPerfLevel(IntEnum):
    AUTO = 0
    MANUAL = 3


NAMES = {
    "mi210": "AMD Instinct MI210",
    "mi250": "AMD Instinct MI250X/MI250",
    "mi300x": "AMD Instinct MI300X",
}


class Board:
    """One GPU: what it tells, and what was set on it.

    ``load`` is a list of (seconds from the clock's start, watts), which the counter and the power
    follow; without one it draws what ``power`` has. The counter runs at ``rate`` times that, and is
    brought up to date every ``step_s``. The power reads as the load of ``lag_s`` before.
    """

    def __init__(self, number=0, model="mi300x", partition=0, **counter):
        old = model in {"mi210", "mi250"}
        self.number = number
        self.partition = partition
        self.name = NAMES[model]
        self.load = counter.pop("load", None)
        self.rate = counter.pop("rate", 1.0)
        self.step_s = counter.pop("step_s", 0.001)
        self.lag_s = counter.pop("lag_s", 0.0)
        self.module = number // 2 if model == "mi250" else None
        assert not counter
        self.power = {
            "current_socket_power": "N/A" if old else 139,
            "average_socket_power": 41 if old else "N/A",
        }
        self.cap_uw = {
            "power_cap": 300_000_000,
            "default_power_cap": 300_000_000,
            "dpm_cap": 300_000_000,
            "min_power_cap": 0,
            "max_power_cap": 300_000_000,
        }
        self.has_edge = self.has_fan = old
        self.throttle = False if old else "N/A"
        self.clock_limit_mhz = None
        self.perf_level = AmdSmiDevPerfLevel.AUTO

    def silence(self):
        """Make it the secondary die of its module."""
        self.power = dict.fromkeys(self.power, 0)
        self.cap_uw = dict.fromkeys(self.cap_uw, 0)
        self.rate = 0.0
        return self

    def power_w(self, time_s):
        if self.load is None:
            return next((watts for watts in self.power.values() if watts != "N/A"), 0)
        return next((watts for start_s, watts in reversed(self.load) if time_s >= start_s), 0)

    def energy_j(self, time_s):
        time_s = int(time_s / self.step_s + 1e-6) * self.step_s
        if self.load is None:
            return self.rate * self.power_w(time_s) * time_s
        ends_s = [start_s for start_s, _ in self.load[1:]] + [float("inf")]
        parts = zip(self.load, ends_s, strict=True)
        return self.rate * sum(w * max(0.0, min(e, time_s) - s) for (s, w), e in parts)


def mi250_pair(first=0, **counter):
    """The two dies of a module: the first reports for both."""
    return Board(first, "mi250", **counter), Board(first + 1, "mi250").silence()


class FakeAmdSmi(ModuleType):
    """The module. ``failing`` makes a function fail with a code; ``users`` counts its users."""

    def __init__(self, *boards, now_ns=lambda: 0):
        super().__init__("amdsmi")
        self.boards = boards
        self.now_ns = now_ns
        self.tells_links = True
        self.failing = {}
        self.users = 0
        self.calls = []
        for name in [
            *("AmdSmiException", "AmdSmiLibraryException", "AmdSmiClkType", "AmdSmiMemoryType"),
            *("AmdSmiTemperatureType", "AmdSmiTemperatureMetric", "AmdSmiDevPerfLevel"),
        ]:
            setattr(self, name, globals()[name])
        for name in dir(type(self)):
            if name.startswith("amdsmi_"):
                setattr(self, name, self._checked(name, getattr(self, name)))

    def _checked(self, name, function):
        def call(*args):
            self.calls.append((name, *args[1:]))
            if name in self.failing:
                raise AmdSmiLibraryException(self.failing[name])
            if name != "amdsmi_init" and not self.users:
                raise AmdSmiLibraryException(32)
            return function(*args)

        return call

    def amdsmi_init(self):
        self.users = 1  # not counted, as in the library

    def amdsmi_shut_down(self):
        self.users = 0

    def amdsmi_get_processor_handles(self):
        return list(self.boards)

    def amdsmi_get_gpu_device_bdf(self, board):
        return f"0000:{board.number + 1:02x}:00.{board.partition}"

    def amdsmi_get_gpu_device_uuid(self, board):
        return f"{board.number:02x}ff74a1-0000-1000-80fc-8bf3a9b4d2e0"

    def amdsmi_get_gpu_enumeration_info(self, board):
        return {"hip_id": self.boards.index(board), "hip_uuid": f"GPU-dead000{board.number}"}

    def amdsmi_get_gpu_kfd_info(self, board):
        return {"kfd_id": 1, "node_id": 1, "current_partition_id": board.partition}

    def amdsmi_get_gpu_asic_info(self, board):
        return {"market_name": board.name, "asic_serial": "0x00000000DEAD0001"}

    def amdsmi_get_gpu_driver_info(self, _board):
        return {"driver_name": "amdgpu", "driver_version": "6.10.5", "driver_date": "2015/01/01"}

    def amdsmi_get_power_info(self, board):
        result = dict(board.power)
        if board.load is not None:
            watts = int(board.power_w(self.now_ns() / 1e9 - board.lag_s))
            result = {name: old if old == "N/A" else watts for name, old in result.items()}
        return {**result, "gfx_voltage": 600, "power_limit": 300_000_000}

    def amdsmi_get_power_cap_info(self, board):
        return dict(board.cap_uw)

    def amdsmi_set_power_cap(self, board, sensor, cap_uw):
        assert isinstance(cap_uw, int)
        assert sensor == 0
        board.cap_uw["power_cap"] = cap_uw

    def amdsmi_get_energy_count(self, board):
        return {
            "energy_accumulator": int(board.energy_j(self.now_ns() / 1e9) * 1e6 / 15.259),
            "counter_resolution": 15.258999824523926,
            "timestamp": self.now_ns(),
        }

    def amdsmi_get_minmax_bandwidth_between_processors(self, board, other):
        if board.module is None or other.module is None or not self.tells_links:
            raise AmdSmiLibraryException(NOT_SUPPORTED)
        links = 4 if board.module == other.module else 2
        return {"min_bandwidth": 50_000, "max_bandwidth": links * 50_000}

    def amdsmi_get_gpu_activity(self, _board):
        return {"gfx_activity": 87, "umc_activity": 12, "mm_activity": "N/A"}

    def amdsmi_get_clock_info(self, _board, kind):
        clocks = {AmdSmiClkType.GFX: (1700, 500, 2100), AmdSmiClkType.MEM: (1300, 900, 1300)}
        now, low, high = clocks[kind]
        return {"clk": now, "min_clk": low, "max_clk": high, "clk_locked": False}

    def amdsmi_set_gpu_clk_limit(self, board, clock, end, mhz):
        assert (clock, end) == ("sclk", "max")
        board.clock_limit_mhz = mhz
        board.perf_level = AmdSmiDevPerfLevel.MANUAL

    def amdsmi_set_gpu_perf_level(self, board, level):
        assert isinstance(level, AmdSmiDevPerfLevel)
        board.perf_level = level

    def amdsmi_get_temp_metric(self, board, place, _metric):
        if place is AmdSmiTemperatureType.EDGE and not board.has_edge:
            raise AmdSmiLibraryException(NOT_SUPPORTED)
        return 41 if place is AmdSmiTemperatureType.EDGE else 52

    def amdsmi_get_gpu_fan_speed_max(self, board, _fan):
        if not board.has_fan:
            raise AmdSmiLibraryException(NOT_SUPPORTED)
        return 255

    def amdsmi_get_gpu_fan_speed(self, _board, _fan):
        return 51

    def amdsmi_get_gpu_memory_total(self, _board, _kind):
        return 64 << 30

    def amdsmi_get_gpu_memory_usage(self, _board, _kind):
        return 283_115_520

    def amdsmi_get_gpu_metrics_info(self, board):
        return {"throttle_status": board.throttle, "indep_throttle_status": board.throttle}

    def amdsmi_get_gpu_process_list(self, _board):
        return [
            {"name": "python3", "pid": 4242, "mem": 0, "memory_usage": {"vram_mem": 270_000_000}},
            {"name": "N/A", "pid": 0, "mem": 0, "memory_usage": {"vram_mem": 0}},
        ]

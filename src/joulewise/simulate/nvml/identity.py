"""What never changes of a unit: its identity and constants, as fields of ``shim/layout.h``."""

from __future__ import annotations

import uuid
from typing import Any, Final

from joulewise.simulate.model import Board, BoardUnit, Module
from joulewise.simulate.sensor import tick_sigma_ns
from joulewise.units import MW_PER_W, NS_PER_S

_NAMESPACE: Final = uuid.UUID("6f0e1d6c-6a0b-4b55-9e0e-6a6f756c6573")
# nvmlDeviceArchitecture_t.
_AMPERE: Final = 7
_HOPPER: Final = 9
# Between HBM's clocks (877 to 2619 MHz on V100 to H100) and GDDR's (5000 MHz and more).
_HBM_MAX_MHZ: Final = 3_000
# nvmlBrandType_t.
_GEFORCE: Final = 5
_NVIDIA: Final = 14
_BRANDS: Final = {"Tesla": 2, "Quadro RTX": 12, "GeForce": _GEFORCE, "NVIDIA GeForce": _GEFORCE}


def unit_fields(unit: BoardUnit, index: int) -> dict[str, Any]:
    """Every constant of ``struct jw_gpu`` for the unit at NVML index ``index``."""
    board = unit.board
    return {
        **_identity_fields(unit, index),
        **_board_fields(board),
        **_clock_fields(board),
        **_sensor_fields(unit),
        **_module_fields(board.module),
    }


def _module_fields(module: Module | None) -> dict[str, Any]:
    if module is None:
        return {}
    return {
        "is_module": True,
        "plain_is_module": module.plain_is_module,
        "counter_is_module": module.counter_is_module,
        "module_limit_mw": round(module.limit_w * MW_PER_W),
        "memory_idle_w": module.memory_idle_w,
        "memory_full_w": module.memory_full_w,
    }


def _identity_fields(unit: BoardUnit, index: int) -> dict[str, Any]:
    board = unit.board
    unique = uuid.uuid5(_NAMESPACE, f"{board.key} {unit.seed} {index}")
    bus = 4 + 3 * index  # any distinct numbers
    return {
        "name": board.name.encode(),
        "uuid": f"GPU-{unique}".encode(),
        "serial": b"" if _brand(board) == _GEFORCE else f"{unique.int % 10**13:013}".encode(),
        "bus": bus,
        "bus_id": f"00000000:{bus:02X}:00.0".encode(),
        "bus_id_legacy": f"0000:{bus:02X}:00.0".encode(),
        "persistence": board.persistence,
    }


def _board_fields(board: Board) -> dict[str, Any]:
    major, minor = board.compute_capability
    return {
        "memory_b": board.memory_b,
        "reserved_b": board.memory_b // 80,  # chosen: some 400 MiB of 32 GiB
        "pci_device_id": board.pci_device_id,
        "pci_subsystem_id": board.pci_subsystem_id,
        "pcie_generation": 4 if board.architecture >= _AMPERE else 3,
        "architecture": board.architecture,
        "brand": _brand(board),
        "compute_major": major,
        "compute_minor": minor,
        "cores": board.cores,
        "fans": board.fans,
        "memory_bus_bits": _memory_bus_bits(board),
        "ecc": _has_hbm(board),
        "slowdown_c": round(board.thermal.slowdown_c),
        "shutdown_c": round(board.thermal.shutdown_c),
        "limit_minimum_mw": round(board.limits.minimum_w * MW_PER_W),
        "limit_maximum_mw": round(board.limits.maximum_w * MW_PER_W),
        "limit_default_mw": round(board.limits.default_w * MW_PER_W),
    }


def _clock_fields(board: Board) -> dict[str, Any]:
    clocks = board.clocks
    memory = sorted((round(mhz) for mhz in clocks.memory_mhz), reverse=True)
    return {
        "memory_clocks": len(memory),
        "memory_clock_mhz": memory + [memory[-1]] * (8 - len(memory)),
        "sm_min_mhz": clocks.sm_min_mhz,
        "sm_max_mhz": clocks.sm_max_mhz,
        "sm_step_mhz": clocks.sm_step_mhz,
    }


def _sensor_fields(unit: BoardUnit) -> dict[str, Any]:
    sensor = unit.board.sensor
    period_ns, counter_period_ns = _ns(sensor.period_s), _ns(sensor.counter_period_s)
    return {
        "phase_ns": unit.sensor_phase_ns,
        "period_ns": period_ns,
        "tick_sigma_ns": tick_sigma_ns(sensor.tick_jitter, period_ns),
        "window_ns": _ns(sensor.window_s),
        "average_window_ns": _ns(sensor.average_window_s),
        "lag_ns": _ns(sensor.lag_s),
        "counter_phase_ns": unit.counter_phase_ns,
        "counter_period_ns": counter_period_ns,
        "counter_tick_sigma_ns": tick_sigma_ns(sensor.tick_jitter, counter_period_ns),
        "counter_lag_ns": unit.counter_lag_ns,
        "utilisation_period_ns": _ns(sensor.utilisation_period_s),
        "gain": unit.gain,
        "noise_w": sensor.noise_w,
        "quantum_w": sensor.quantum_w,
        "counter_step_j": sensor.counter_step_j,
        "seed": unit.seed % 2**64,
        "plain_is_average": sensor.plain_is_average,
        "buffer_samples": sensor.buffer_samples,
    }


def _ns(seconds: float) -> int:
    return round(seconds * NS_PER_S)


def _brand(board: Board) -> int:
    return next((b for name, b in _BRANDS.items() if board.name.startswith(name)), _NVIDIA)


def _has_hbm(board: Board) -> bool:
    """Whether its memory is stacked, which runs at a low clock: those boards come with ECC on."""
    return max(board.clocks.memory_mhz) < _HBM_MAX_MHZ


def _memory_bus_bits(board: Board) -> int:
    """From NVIDIA's data sheets of the boards there are."""
    if _has_hbm(board):
        if board.architecture >= _HOPPER:
            return 6144
        return 5120 if board.architecture >= _AMPERE else 4096
    return 384 if board.memory_b > 16 << 30 else 128

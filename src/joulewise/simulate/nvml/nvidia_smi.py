"""A stand-in for ``nvidia-smi``, over the same simulated NVML as every other client.

Its output follows NVIDIA's: the table, ``--query-gpu`` and ``--query-compute-apps`` as CSV, and the
options that set controls.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NoReturn

import pynvml as nvml

from joulewise.simulate.nvml.nvidia_smi_fields import (
    APP_ALIASES,
    APP_FIELDS,
    GPU_ALIASES,
    GPU_FIELDS,
    NOT_AVAILABLE,
    ask,
    compute_mode,
    process_memory_mib,
    process_name,
)
from joulewise.units import MW_PER_W

_LEFT, _MIDDLE, _RIGHT = 41, 24, 22  # widths of the three columns
_WIDTH = _LEFT + _MIDDLE + _RIGHT + 2


def table(handles: Sequence[Any]) -> Iterator[str]:
    """The lines of the default view: versions, each GPU, each process."""
    version = nvml.nvmlSystemGetDriverVersion()
    cuda = nvml.nvmlSystemGetCudaDriverVersion()
    head = f" NVIDIA-SMI {version:<21} Driver Version: {version:<14} "
    head += f"CUDA Version: {cuda // 1000}.{cuda % 1000 // 10}"
    rule = f"+{'-' * _LEFT}+{'-' * _MIDDLE}+{'-' * _RIGHT}+"
    yield f"{datetime.now().astimezone():%a %b %d %H:%M:%S %Y}"
    yield f"+{'-' * _WIDTH}+"
    yield f"|{head:<{_WIDTH}}|"
    yield rule
    yield _row(" GPU  Name", "Persistence-M ", " Bus-Id", "Disp.A ", "Volatile Uncorr. ECC ")
    yield _row(" Fan  Temp   Perf", "Pwr:Usage/Cap ", "", "Memory-Usage ", "GPU-Util  Compute M. ")
    yield f"|{'=' * _LEFT}+{'=' * _MIDDLE}+{'=' * _RIGHT}|"
    for handle in handles:
        yield from _gpu(handle)
        yield rule
    yield ""
    yield from _processes(handles)


def _gpu(handle: Any) -> Iterator[str]:
    value = {name: ask(GPU_FIELDS[name][1], handle) for name in _SHOWN}
    fan = "N/A" if value["fan.speed"] == NOT_AVAILABLE else f"{value['fan.speed']}%"
    persistence = "On" if value["persistence_mode"] == "Enabled" else "Off"
    ecc = value["ecc.errors.uncorrected.volatile.total"].strip("[]")
    draw_w, cap_w = (round(float(value[name])) for name in ("power.draw", "power.limit"))
    yield _row(
        f" {value['index']:>3}  {value['name']:.26}",
        f"{persistence}  ",
        f"   {value['pci.bus_id']}",
        "Off ",
        f"{ecc} ",
    )
    yield _row(
        f" {fan:<4} {value['temperature.gpu']:>3}C    {value['pstate']}",
        f"{draw_w:>4}W / {cap_w:>4}W ",
        "",
        f"{value['memory.used']}MiB / {value['memory.total']:>6}MiB ",
        f"{value['utilization.gpu']:>3}% {compute_mode(handle):>12} ",
    )


_SHOWN = (
    "index", "name", "persistence_mode", "pci.bus_id", "fan.speed", "temperature.gpu", "pstate",
    "power.draw", "power.limit", "memory.used", "memory.total", "utilization.gpu",
    "ecc.errors.uncorrected.volatile.total",
)  # fmt: skip


def _row(left: str, left_end: str, middle: str, middle_end: str, right: str) -> str:
    return (
        f"|{left:<{_LEFT - len(left_end)}}{left_end}"
        f"|{middle:<{_MIDDLE - len(middle_end)}}{middle_end}|{right:>{_RIGHT}}|"
    )


def _processes(handles: Sequence[Any]) -> Iterator[str]:
    rows = [
        f"  {nvml.nvmlDeviceGetIndex(handle):>3}   N/A  N/A {process.pid:>13}      C   "
        f"{process_name(process):<35.35} {_memory(process):>9}"
        for handle in handles
        for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    ]
    yield f"+{'-' * _WIDTH}+"
    yield f"|{' Processes:':<{_WIDTH}}|"
    head = "  GPU   GI   CI           PID   Type   Process name                       GPU Memory"
    yield f"|{head:<{_WIDTH}}|"
    yield f"|{'=' * _WIDTH}|"
    for row in rows or ["  No running processes found"]:
        yield f"|{row:<{_WIDTH}}|"
    yield f"+{'-' * _WIDTH}+"


def _memory(process: Any) -> str:
    used_mib = process_memory_mib(process)
    return "N/A" if used_mib == NOT_AVAILABLE else f"{used_mib}MiB"


_Field = tuple[str, str, Callable[..., Any]]
_MAX_STATUS: Final = 255  # of a process on Unix
_MODES: Final = {"DEFAULT": 0, "0": 0, "PROHIBITED": 2, "2": 2, "EXCLUSIVE_PROCESS": 3, "3": 3}


class _RefusedError(Exception):
    """A message, and the exit status: an NVML code, as nvidia-smi has it."""

    def __init__(self, message: str, status: int = nvml.NVML_ERROR_INVALID_ARGUMENT) -> None:
        super().__init__(message)
        self.status = min(status, _MAX_STATUS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status."""
    options = _parser().parse_args(arguments)
    if options.help_query_gpu:
        _show([*GPU_FIELDS, *GPU_ALIASES])
        return 0
    try:
        _attempt("reach the driver", nvml.nvmlInit)
        try:
            _run(options)
        finally:
            nvml.nvmlShutdown()
    except _RefusedError as refusal:
        _show([str(refusal)])
        return refusal.status
    except KeyboardInterrupt:
        pass
    return 0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"nvidia-smi (simulated): {message}\n  see: nvidia-smi --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="nvidia-smi", description="Shows and sets the simulated GPUs.", allow_abbrev=False
    )
    show = parser.add_argument_group("show")
    show.add_argument("-L", "--list-gpus", action="store_true", help="one line a GPU")
    show.add_argument("--query-gpu", metavar="A,B,...", help="these fields of every GPU")
    show.add_argument("--query-compute-apps", metavar="A,B,...", help="of every process")
    show.add_argument("--format", default="csv", metavar="csv[,noheader][,nounits]")
    show.add_argument("--help-query-gpu", action="store_true", help="the fields there are")
    show.add_argument("-i", "--id", metavar="ID,...", help="by index, UUID or PCI bus id")
    show.add_argument("-l", "--loop", type=_pause, metavar="SEC", help="again, until Ctrl-C")
    show.add_argument("-lms", "--loop-ms", type=_pause, metavar="MS")
    setting = parser.add_argument_group("set (as root)")
    setting.add_argument("-pm", "--persistence-mode", choices=("0", "1", "DISABLED", "ENABLED"))
    setting.add_argument("-c", "--compute-mode", choices=tuple(_MODES))
    setting.add_argument("-pl", "--power-limit", type=float, metavar="W")
    setting.add_argument("-lgc", "--lock-gpu-clocks", type=_clocks, metavar="MIN[,MAX]")
    setting.add_argument("-rgc", "--reset-gpu-clocks", action="store_true")
    setting.add_argument("-lmc", "--lock-memory-clocks", type=_clocks, metavar="MIN[,MAX]")
    setting.add_argument("-rmc", "--reset-memory-clocks", action="store_true")
    setting.add_argument("-ac", "--applications-clocks", type=_clocks, metavar="MEM,SM")
    setting.add_argument("-rac", "--reset-applications-clocks", action="store_true")
    return parser


def _clocks(text: str) -> tuple[int, int]:
    first, _, second = text.partition(",")
    try:
        return int(first), int(second or first)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no clock in MHz") from None


def _pause(text: str) -> float:
    pause = float(text)
    if not 0 <= pause < math.inf:
        raise ValueError
    return pause


def _run(options: argparse.Namespace) -> None:
    actions = list(_actions(options))
    if actions:
        for handle in _handles(options.id):
            for action in actions:
                _show([action(handle)])
        _show(["All done."])
        return
    pause_s = options.loop if options.loop_ms is None else options.loop_ms / 1000
    headed = True
    while True:
        _show(_view(options, headed=headed))
        if pause_s is None:
            return
        headed = options.query_gpu is None and options.query_compute_apps is None
        time.sleep(pause_s)


def _view(options: argparse.Namespace, *, headed: bool) -> Iterable[str]:
    handles = _handles(options.id)
    try:
        if options.query_gpu is not None:
            fields = _fields(options.query_gpu, GPU_FIELDS, GPU_ALIASES)
            rows = [[ask(get, handle) for _, _, get in fields] for handle in handles]
            return list(_csv(fields, rows, options.format, headed=headed))
        if options.query_compute_apps is not None:
            fields = _fields(options.query_compute_apps, APP_FIELDS, APP_ALIASES)
            rows = [
                [str(get(handle, process)) for _, _, get in fields]
                for handle in handles
                for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)
            ]
            return list(_csv(fields, rows, options.format, headed=headed))
        if options.list_gpus:
            return [
                f"GPU {nvml.nvmlDeviceGetIndex(handle)}: {nvml.nvmlDeviceGetName(handle)} "
                f"(UUID: {nvml.nvmlDeviceGetUUID(handle)})"
                for handle in handles
            ]
        return list(table(handles))
    except nvml.NVMLError as error:
        raise _RefusedError(f"Unable to read the GPUs: {error}", error.value) from error


def _fields(
    wanted: str, known: Mapping[str, tuple[str, Any]], aliases: Mapping[str, str]
) -> list[_Field]:
    fields = []
    for entry in wanted.split(","):
        name = aliases.get(entry.strip(), entry.strip())
        if name not in known:
            raise _RefusedError(f'Field "{name}" is not a valid field to query.')
        fields.append((name, *known[name]))
    return fields


def _csv(
    fields: Sequence[_Field], rows: Sequence[Sequence[str]], text: str, *, headed: bool
) -> Iterator[str]:
    kinds = [kind.strip() for kind in text.split(",")]
    if "csv" not in kinds or set(kinds) - {"csv", "noheader", "nounits"}:
        raise _RefusedError(f'"{text}" is not a valid format: take csv[,noheader][,nounits].')
    if headed and "noheader" not in kinds:
        yield ", ".join(f"{name} [{unit}]" if unit else name for name, unit, _ in fields)
    for row in rows:
        yield ", ".join(
            value if "nounits" in kinds or value == NOT_AVAILABLE else f"{value} {unit}".rstrip()
            for value, (_, unit, _) in zip(row, fields, strict=True)
        )


def _handles(wanted: str | None) -> list[Any]:
    if wanted is None:
        count = _attempt("count the GPUs", nvml.nvmlDeviceGetCount)
        wanted = ",".join(map(str, range(count)))
    return [_handle(name.strip()) for name in wanted.split(",")]


def _handle(name: str) -> Any:
    what = f"determine the device handle for GPU {name}"
    if name.isdigit():
        return _attempt(what, nvml.nvmlDeviceGetHandleByIndex, int(name))
    by_name = nvml.nvmlDeviceGetHandleByUUID
    if not name.startswith("GPU-"):
        by_name = nvml.nvmlDeviceGetHandleByPciBusId
    return _attempt(what, by_name, name.encode())


def _actions(options: argparse.Namespace) -> Iterator[Callable[[Any], str]]:
    """What to set on each GPU, in an order in which no later action undoes an earlier one."""
    if options.persistence_mode:
        on = options.persistence_mode in {"1", "ENABLED"}
        word = "Enabled" if on else "Disabled"
        yield _setter(f"{word} persistence mode", nvml.nvmlDeviceSetPersistenceMode, int(on))
    if options.compute_mode:
        mode = _MODES[options.compute_mode]
        yield _setter(f"Set compute mode to {mode}", nvml.nvmlDeviceSetComputeMode, mode)
    if options.power_limit is not None:
        yield lambda handle: _set_limit(handle, options.power_limit)
    for name, call in (
        ("GPU", nvml.nvmlDeviceSetGpuLockedClocks),
        ("Memory", nvml.nvmlDeviceSetMemoryLockedClocks),
    ):
        if low_high := getattr(options, f"lock_{name.lower()}_clocks"):
            yield _setter("{} clocks set to {}, {} MHz".format(name, *low_high), call, *low_high)
    if options.reset_gpu_clocks:
        yield _setter("GPU clocks unlocked", nvml.nvmlDeviceResetGpuLockedClocks)
    if options.reset_memory_clocks:
        yield _setter("Memory clocks unlocked", nvml.nvmlDeviceResetMemoryLockedClocks)
    if options.applications_clocks:
        memory_mhz, sm_mhz = options.applications_clocks
        what = f'Applications clocks set to "(MEM {memory_mhz}, SM {sm_mhz})"'
        yield _setter(what, nvml.nvmlDeviceSetApplicationsClocks, memory_mhz, sm_mhz)
    if options.reset_applications_clocks:
        yield _setter("Applications clocks reset", nvml.nvmlDeviceResetApplicationsClocks)


def _setter(what: str, call: Callable[..., Any], *values: int) -> Callable[[Any], str]:
    def act(handle: Any) -> str:
        bus_id = nvml.nvmlDeviceGetPciInfo(handle).busId
        _attempt(f"have this on GPU {bus_id} ({what})", call, handle, *values)
        return f"{what} for GPU {bus_id}."

    return act


def _set_limit(handle: Any, limit_w: float) -> str:
    before_w = nvml.nvmlDeviceGetPowerManagementLimit(handle) / MW_PER_W
    low_w, high_w = (
        limit_mw / MW_PER_W
        for limit_mw in nvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)
    )
    bus_id = nvml.nvmlDeviceGetPciInfo(handle).busId
    if not low_w <= limit_w <= high_w:
        raise _RefusedError(
            f"Provided power limit {limit_w:.2f} W is not between {low_w:.2f} W and "
            f"{high_w:.2f} W, as GPU {bus_id} needs it."
        )
    set_limit = nvml.nvmlDeviceSetPowerManagementLimit
    what = f"set the power limit of GPU {bus_id}"
    _attempt(what, set_limit, handle, round(limit_w * MW_PER_W))
    return f"Power limit for GPU {bus_id} was set to {limit_w:.2f} W from {before_w:.2f} W."


def _attempt(what: str, call: Callable[..., Any], *values: Any) -> Any:
    try:
        return call(*values)
    except nvml.NVMLError as error:
        raise _RefusedError(f"Unable to {what}: {error}", error.value) from error


def _show(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

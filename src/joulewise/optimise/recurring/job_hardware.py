"""What a job trains on: a policy learns for each type of hardware by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from joulewise.data import Unavailable
from joulewise.data.jobs import gpu_type_name
from joulewise.errors import DeviceError, UsageError
from joulewise.session.gpu_discovery import DiscoveredGpu, gpus

_SIMULATED = " (simulated)"


@dataclass(frozen=True)
class JobHardware:
    """The GPUs of a job, by which its policy is found, and their maximum power in all.

    ``note`` says on what the cost rests where that is not the GPUs' own power.
    """

    name: str
    max_power_w: float
    is_simulated: bool = False
    note: str = ""
    has_gpu: bool = True


def find_hardware(
    named: Sequence[int], environ: Mapping[str, str], cpu_tdp_w: float | None = None
) -> JobHardware:
    """The GPUs with these indices, else those that a command can see; else the CPUs.

    ``max_power_w`` is the sum of the highest power limits that can be set (Zeus' MAXPOWER).
    """
    try:
        found = gpus(named, environ)
    except UsageError:
        if named:
            raise
        found = []
    except DeviceError:  # no driver answers: the recorder says so, too
        found = []
    if found:
        return _of_gpus(found)
    return _of_cpus(environ, cpu_tdp_w)


def check_cost(hardware: JobHardware, eta: float) -> None:
    """Raise a UsageError where everything would cost nothing: time alone, times no power."""
    if eta == 0 and not hardware.max_power_w:
        raise UsageError(
            f"with --eta 0 only time counts, and the maximum power of {hardware.name} is not known",
            "weigh energy as well, as by --eta 0.5, or give the power of the CPU by --cpu-tdp",
        )


def _of_gpus(found: Sequence[DiscoveredGpu]) -> JobHardware:
    models = sorted({gpu.name.removesuffix(_SIMULATED) for gpu in found})
    is_simulated = any(gpu.is_simulated for gpu in found)
    name = gpu_type_name(" and ".join(models), len(found), is_simulated=is_simulated)
    known_w = [gpu.highest_w for gpu in found if gpu.default_w is not None]
    if len(known_w) == len(found):
        return JobHardware(name, sum(known_w), is_simulated)
    without = len(found) - len(known_w)
    note = "a GPU without a power limit: time has no weight in the cost"
    if known_w:
        note = (
            f"{without} of {len(found)} GPUs {'has' if without == 1 else 'have'} no power limit: "
            f"the maximum power in the cost is that of the others, {sum(known_w):g} W"
        )
    return JobHardware(name, sum(known_w), is_simulated, note)


def _of_cpus(environ: Mapping[str, str], cpu_tdp_w: float | None) -> JobHardware:
    from joulewise.devices import Options
    from joulewise.devices.host import cpu_model

    packages = cpu_model.find(Options(environ=environ, cpu_tdp_w=cpu_tdp_w))
    if isinstance(packages, Unavailable):
        note = f"no GPU, and no CPU whose power is known ({packages.reason})"
        return JobHardware(
            "no GPU", 0.0, note=f"{note}: time has no weight in the cost", has_gpu=False
        )
    power_w = sum(package.tdp_w for package in packages)
    name = gpu_type_name(f"no GPU, {packages[0].info.name}", 1)
    note = f"no GPU: the cost is that of what is counted, with a maximum power of {power_w:g} W"
    return JobHardware(name, power_w, note=f"{note} (the TDP; --cpu-tdp)", has_gpu=False)

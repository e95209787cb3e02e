"""Where something was measured: host, devices, drivers, versions, commit."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import starmap
from pathlib import Path

from joulewise.data import Kind
from joulewise.record.container import Container
from joulewise.record.machine import Machine
from joulewise.record.manifest import Manifest, RecordedDevice
from joulewise.units import digits

_SHORT = 12
_B_PER_GIB = 1 << 30


def surroundings(manifests: Sequence[Manifest], store: Path | None) -> dict[str, str]:
    """By name; what differs between the runs is listed, what is not known left out."""
    found: dict[str, dict[str, None]] = {}
    for manifest in manifests:
        for name, value in _facts(manifest):
            if value:
                found.setdefault(name, {})[value] = None
    if store is not None:
        found["Store"] = {_relative(store): None}
    return {name: ", ".join(values) for name, values in found.items()}


def _facts(manifest: Manifest) -> Iterator[tuple[str, str]]:
    host, git = manifest.host, manifest.git
    yield "Host", host.get("name", "")
    yield "Simulated on", host.get("simulated_on", "")
    yield "System", " · ".join(filter(None, (host.get("system"), host.get("kernel"))))
    yield "Container", _container(manifest.container)
    yield "Cores", _cores(manifest.machine)
    yield "RAM", _ram(manifest.machine)
    for device in manifest.devices:
        yield device.info.key, _device(device)
    for key, missing in manifest.missing.items():
        yield key, f"unavailable: {missing.reason}"
    yield "Python", host.get("python", "")
    yield "Frameworks", ", ".join(starmap(_framework, manifest.frameworks.items()))
    yield "Versions", ", ".join(f"{name} {version}" for name, version in manifest.versions.items())
    commit = git.get("commit", "")[:_SHORT]
    on = f" on {git['branch']}" if git.get("branch") else ""
    yield (
        "Git commit",
        commit and commit + on + (", with changes" if git.get("dirty") == "yes" else ""),
    )
    yield "Variables", ", ".join(f"{name}={value}" for name, value in manifest.environ.items())
    yield "Read", f"{manifest.rate_hz:g} times a second" if manifest.rate_hz else ""


def _device(device: RecordedDevice) -> str:
    is_driven = device.info.kind is Kind.GPU and device.info.driver
    driver = f"driver {device.info.driver}" if is_driven else ""
    memory_b = device.info.memory_b
    memory = f"{_gib(memory_b)} of memory" if memory_b else ""
    return " · ".join(filter(None, (device.info.name, memory, driver, device.info.note)))


def _container(container: Container | None) -> str:
    if container is None:
        return ""
    return " · ".join(filter(None, (container.runtime, container.image, container.id[:_SHORT])))


def _cores(machine: Machine | None) -> str:
    if machine is None:
        return ""
    allowed = machine.cores_allowed
    is_limited = allowed is not None and allowed != machine.cores_logical
    parts = (
        (machine.cores_physical, "physical"),
        (machine.cores_logical, "logical"),
        (allowed if is_limited else None, "allowed"),
    )
    return ", ".join(f"{number:g} {word}" for number, word in parts if number is not None)


def _ram(machine: Machine | None) -> str:
    if machine is None or machine.ram_b is None:
        return ""
    limit = f", {_gib(machine.ram_limit_b)} allowed" if machine.ram_limit_b else ""
    return _gib(machine.ram_b) + limit


def _gib(memory_b: float) -> str:
    return f"{digits(memory_b / _B_PER_GIB)} GiB"


def _framework(name: str, parts: Mapping[str, str]) -> str:
    labels = {"cuda": "CUDA", "cudnn": "cuDNN", "hip": "HIP"}
    libraries = [f"{labels.get(key, key)} {v}" for key, v in parts.items() if key != "version"]
    within = f" ({', '.join(libraries)})" if libraries else ""
    return f"{name} {parts.get('version', '')}{within}"


def _relative(store: Path) -> str:
    """As seen from here; a page that is passed on need not tell where somebody's home is."""
    path = os.path.relpath(store)
    return store.name if path.startswith("..") else path

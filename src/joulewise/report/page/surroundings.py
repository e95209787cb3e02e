"""Where something was measured: host, devices, drivers, versions, commit."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from joulewise.data import Kind
from joulewise.record.manifest import Manifest, RecordedDevice

_SHORT = 12


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
    for device in manifest.devices:
        yield device.info.key, _device(device)
    for key, missing in manifest.missing.items():
        yield key, f"unavailable: {missing.reason}"
    yield "Python", host.get("python", "")
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
    return " · ".join(filter(None, (device.info.name, driver, device.info.note)))


def _relative(store: Path) -> str:
    """As seen from here; a page that is passed on need not tell where somebody's home is."""
    path = os.path.relpath(store)
    return store.name if path.startswith("..") else path

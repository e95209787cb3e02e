"""Whether a power limit that somebody has lowered did anything in a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from joulewise.analyse.measured import MeasuredDevice
from joulewise.analyse.stretch import Stretch
from joulewise.data import Caution, Knob, PowerScope, Quantity, RunWarning
from joulewise.devices.nvidia.binding import Binding, binding
from joulewise.record.manifest import Manifest

_SAME_W: Final = 0.5


def is_limited_by_run(manifest: Manifest, key: str) -> bool:
    """Whether this run itself has set the device's power limit."""
    return Knob.POWER_LIMIT.value in manifest.options.get("settings", {}).get(key, {})


def _limited_mean_w(measured: MeasuredDevice, run: Stretch) -> float | None:
    """The mean power of what the limit holds: of a module, the GPU, unless the limit is its own."""
    info = measured.device.info
    if info.power_scope is not PowerScope.MODULE or info.limit_scope is PowerScope.MODULE:
        return measured.uses[0].mean_w
    power_w = measured.slow.get(Quantity.GPU_POWER.value)
    if power_w is None:
        return None
    within_w = power_w[run.holds(measured.slow["t_ns"]) & np.isfinite(power_w)]
    return float(within_w.mean()) if len(within_w) else None


def odd_cap(measured: MeasuredDevice, manifest: Manifest, run: Stretch) -> Iterator[RunWarning]:
    device, slow = measured.device, measured.slow
    key, mean_w = device.info.key, _limited_mean_w(measured, run)
    reasons = slow.get(Quantity.THROTTLE.value)
    limits_w = slow.get(Quantity.ENFORCED_LIMIT.value)
    if reasons is None or limits_w is None or device.info.vendor != "nvidia":
        return
    seen = run.holds(slow["t_ns"]) & np.isfinite(reasons) & np.isfinite(limits_w)
    if not seen.any() or np.ptp(limits_w[seen]) > _SAME_W:  # who turned it meanwhile is told apart
        return
    limit_w = float(limits_w[seen][0])
    turned = is_limited_by_run(manifest, key)
    lowered = device.default_limit_w is not None and limit_w < device.default_limit_w - _SAME_W
    if not turned and not lowered:
        return
    found = binding(limit_w, reasons[seen].astype(np.int64).tolist(), mean_w)
    if found is Binding.NEVER:
        yield RunWarning(
            Caution.CAP_NEVER_BINDS,
            f"its limit of {limit_w:g} W never held it back",
            "lower the limit, or lock the SM clock: --sm-clock",
            key,
        )
    elif found is Binding.BELOW_FLOOR:
        yield RunWarning(
            Caution.CAP_BELOW_FLOOR,
            f"it drew {mean_w:.0f} W on average under a limit of {limit_w:g} W, "
            "which its lowest clocks cannot hold",
            "take a limit above what it draws: this one costs time and saves no more",
            key,
        )

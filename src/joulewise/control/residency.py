"""What power limits do to the devices that are held, seen by whoever guards them."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from joulewise.control.holds import Change, Hold, Stacks
from joulewise.control.words import valued
from joulewise.data import Knob, Quantity, Reading
from joulewise.devices import Device
from joulewise.devices.nvidia.binding import Binding, binding

_PERIOD_S: Final = 1.0


class Residency:
    """Looks once a second at most; what was seen of a hold is kept for as long as it is there."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._next_s = -math.inf
        self._seen: dict[tuple[str, str], _Seen] = {}  # by hold and device

    def look(self, stacks: Stacks, devices: Mapping[str, Device]) -> None:
        """At every limit that is in force: those under another lease are not."""
        if self._now_s() < self._next_s:
            return
        self._next_s = self._now_s() + _PERIOD_S
        there = {hold.id for hold in stacks}
        self._seen = {key: seen for key, seen in self._seen.items() if key[0] in there}
        for uid, device in devices.items():
            top = stacks.top(uid, Knob.POWER_LIMIT)
            if top and device.info.vendor == "nvidia":  # whose reasons for lower clocks we know
                self._seen.setdefault((top[0].id, uid), _Seen()).look(device)

    def said(self, hold: Hold) -> list[str]:
        """What there is to say of the limits of a hold."""
        limits = [change for change in hold.changes if change.knob is Knob.POWER_LIMIT]
        seen = ((self._seen.get((hold.id, change.device)), change) for change in limits)
        return [told for each, change in seen if each and (told := each.said(change))]


class _Seen:
    def __init__(self) -> None:
        self._reasons: Counter[int] = Counter()
        self._sum_w = 0.0

    def look(self, device: Device) -> None:
        reasons, power = device.read(Quantity.THROTTLE), device.read(Quantity.POWER)
        if isinstance(reasons, Reading) and isinstance(power, Reading):
            self._reasons[int(reasons.value)] += 1
            self._sum_w += power.value

    def said(self, change: Change) -> str:
        looks = sum(self._reasons.values())
        mean_w = self._sum_w / looks if looks else None
        found = binding(change.value, self._reasons.elements(), mean_w)
        if found is None:
            return ""
        limit = valued(change.knob, change.value)
        if found is Binding.NEVER:
            return f"{change.key} never needed more than its limit of {limit}: {found.value}"
        return f"{change.key} drew {mean_w:.0f} W under a limit of {limit}: {found.value}"

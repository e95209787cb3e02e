"""Which devices' joules are already in another's: the one rule by which each counts once.

A counter may contain others: ``psys`` contains the CPU packages and their memory, a superchip's
module counter its GPU, CPU and memory. What contains what is told by ``DeviceInfo.contains``, by
whoever opens the device; here is what follows from it for a total.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from joulewise.data.devices import DeviceInfo, PowerScope


def find_contained(
    devices: Iterable[DeviceInfo],
    not_counted: Collection[str] = (),
    unread: Collection[str] = (),
) -> dict[str, str]:
    """The key of each device that is inside another that counts, and the key of that one.

    A device of ``not_counted`` contains nothing that counts, and is inside nothing. One that is
    ``unread`` contains nothing either, and may be inside another, which has its joules. Of two that
    contain each other (two GPUs that both tell their module's energy) the first counts.
    """
    inside: dict[str, str] = {}
    for device in devices:
        if device.key in not_counted or device.key in unread or device.key in inside:
            continue
        for key in device.contains:
            if key not in not_counted:
                inside.setdefault(key, device.key)
    return inside


def find_replaced(
    devices: Iterable[DeviceInfo], unread: Collection[str], contained: Mapping[str, str]
) -> list[str]:
    """Unread devices whose contents were all read: what is in them counts in their place.

    Not so a module: its GPU is in it and is no device besides.
    """
    return [
        device.key
        for device in devices
        if device.key in unread
        and device.key not in contained
        and device.contains
        and device.power_scope is not PowerScope.MODULE
        and not any(key in unread for key in device.contains)
    ]

"""Waiting between runs, so that one does not warm up the next."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from joulewise.errors import UsageError

_FORM: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(s|min|C|°C)")
_LOOK_S: Final = 2.0
_PATIENCE_S: Final = 900.0

Sleep = Callable[[float], bool]
"""Waits so many seconds; False where there is no more reason to."""


@dataclass(frozen=True)
class CoolDown:
    """For ``wait_s``, or until no GPU of the run is warmer than ``below_c``."""

    wait_s: float = 0.0
    below_c: float | None = None

    def wait(self, warmest_c: Callable[[], float | None], sleep: Sleep) -> str:
        """Wait; what there is to say of it, where it did not do what it should."""
        if self.below_c is None:
            if self.wait_s:
                sleep(self.wait_s)
            return ""
        end_s = time.monotonic() + _PATIENCE_S
        while (now_c := warmest_c()) is not None and now_c > self.below_c:
            if time.monotonic() > end_s:
                return f"still {now_c:g} °C after {_PATIENCE_S / 60:g} min: it goes on all the same"
            if not sleep(_LOOK_S):
                return ""
        return "" if now_c is not None else "no GPU tells its temperature: it does not cool down"


def parse_cool_down(text: str) -> CoolDown:
    if not text:
        return CoolDown()
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise UsageError(
            f"{text!r} is no cool-down", "give a time or a temperature: 60s, 2min or 50C"
        )
    value, unit = float(found[1]), found[2]
    if unit in {"C", "°C"}:
        return CoolDown(below_c=value)
    return CoolDown(wait_s=value * (60 if unit == "min" else 1))

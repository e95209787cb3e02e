"""Figures against what they should be, shown together at the end of a benchmark."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Verdicts:
    lines: list[str] = field(default_factory=list)
    all_met: bool = True

    def at_most(self, what: str, value: float, limit: float, *, percent: bool = True) -> None:
        self._add(what, value, limit, "<=", value <= limit, percent=percent)

    def at_least(self, what: str, value: float, limit: float, *, percent: bool = False) -> None:
        self._add(what, value, limit, ">=", value >= limit, percent=percent)

    def show(self) -> None:
        print("\n" + "\n".join(self.lines))

    def _add(
        self, what: str, value: float, limit: float, sign: str, met: bool, *, percent: bool
    ) -> None:
        form = ".2%" if percent else ".4g"
        mark = "met" if met else "MISSED"
        self.lines.append(f"{mark:6} {what}: {value:{form}} ({sign} {limit:{form}})")
        self.all_met = self.all_met and met

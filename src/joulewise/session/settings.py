"""Power limits and clocks for the time of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil, floor, inf
from typing import TYPE_CHECKING, Any, Final

from joulewise.errors import DeviceError, JoulewiseError, OutOfRangeError, UsageError

if TYPE_CHECKING:
    from joulewise.control import Lease
    from joulewise.control.client import GoneError
    from joulewise.control.holds import RestoreOutcome
    from joulewise.session.find_gpus import FoundCpu, FoundGpu

_PERCENT: Final = "%"
_UNGUARDED: Final = "the settings may not hold to the end of the run"
_ALONE: Final = "the command goes on without it"


@dataclass(frozen=True)
class Settings:
    """What is asked for; ``power_limit`` is in watts, or in percent of each GPU's default.

    ``gpus`` are numbers of NVML; none means those that the command will see. ``cpu_limit_w`` is
    for each CPU package.
    """

    power_limit: str | None = None
    sm_clock_mhz: float | None = None
    mem_clock_mhz: float | None = None
    cpu_limit_w: float | None = None
    gpus: tuple[int, ...] = ()
    force: bool = False

    def __post_init__(self) -> None:
        if self.power_limit is not None:
            _parsed(self.power_limit)
        if self.gpus and not self.turns_gpus:
            raise _lacks_a_setting("--gpu")
        if self.force and self.is_nothing:
            raise _lacks_a_setting("--force")

    @property
    def turns_gpus(self) -> bool:
        knobs = self.power_limit, self.sm_clock_mhz, self.mem_clock_mhz
        return any(knob is not None for knob in knobs)

    @property
    def is_nothing(self) -> bool:
        return not self.turns_gpus and self.cpu_limit_w is None


def _lacks_a_setting(option: str) -> UsageError:
    return UsageError(
        f"{option} without a setting", "add --power-limit or a clock, or leave it out"
    )


class Turned:
    """Knobs that are turned until ``close``, or until this process is gone.

    Then ``unrestored`` tells what was ours to put back and is not back.
    """

    def __init__(self, leases: Sequence[Lease], say: Callable[[str], None]) -> None:
        self._leases = leases
        self._say = say
        self._is_told = False
        self.unrestored: tuple[str, ...] = ()
        self.notes = tuple(note for lease in leases for note in lease.notes)

    def said(self) -> Iterator[str]:
        """What is set, in a line for all GPUs for which that is the same."""
        from joulewise.control.messages import set_for_a_run
        from joulewise.data import listed_keys

        alike: dict[str, list[str]] = {}
        for lease in self._leases:
            by = ", by the guard service" if lease.by_service else ""
            for key, values in lease.enforced.items():
                before = lease.before[key]
                each = (set_for_a_run(knob, before[knob], now) for knob, now in values.items())
                alike.setdefault(f"{', '.join(each)} for this run{by}", []).append(key)
        for what, keys in alike.items():
            yield f"{listed_keys(keys)}: {what}"

    def as_json(self) -> dict[str, dict[str, float]]:
        """What the devices make of it, by key and knob."""
        return {
            key: {knob.value: value for knob, value in values.items()}
            for lease in self._leases
            for key, values in lease.enforced.items()
        }

    @property
    def descriptors(self) -> list[int]:
        """Readable when it is time to ask whether they are ``lost``."""
        return sorted({lease.fileno() for lease in self._leases} - {-1})

    def lost(self) -> str:
        """What to know where nobody guards them any more; empty else, and the next time."""
        gone = next(filter(None, (lease.gone() for lease in self._leases)), None)
        if self._is_told or gone is None:
            return ""
        self._is_told = True
        line = f"{gone.message}: {_UNGUARDED}" if gone.outcomes is None else _put_back(gone)
        self._say(line)
        return line

    def close(self) -> None:
        """Put everything back, and say what a person must know of that."""
        leases, self._leases = self._leases, ()
        for lease in reversed(leases):
            try:
                outcomes = lease.release()
            except JoulewiseError as error:  # noqa: PERF203  # the others go back all the same
                line = f"{error.message}; {error.hint}"
                self.unrestored += (line,)
                self._say(line)
            else:
                self._say_all(outcomes)

    def _say_all(self, outcomes: Sequence[RestoreOutcome]) -> None:
        from joulewise.control.messages import said

        for outcome in outcomes:
            if not outcome.is_well:
                self._say(said(outcome))


def _put_back(gone: GoneError) -> str:
    """As in "the guard service ended and put gpu0's power limit back to 300 W"."""
    from joulewise.control.holds import End, RestoreOutcome
    from joulewise.control.messages import said

    outcomes = [RestoreOutcome.from_json(each) for each in gone.outcomes or ()]
    is_put = all(each.end is End.RESTORED and each.value is not None for each in outcomes)
    how = " and put " if is_put else ": "
    return f"{gone.message}{how}{', '.join(map(said, outcomes))}; {_ALONE}"


def turn(settings: Settings, environ: Mapping[str, str], say: Callable[[str], None]) -> Turned:
    """Turn knobs, all of them or none."""
    from joulewise.control import lease
    from joulewise.session.find_gpus import find, pick

    found = find(environ)
    wants = _alike(settings, pick(found.gpus, settings.gpus)) if settings.turns_gpus else ()
    leases: list[Lease] = []
    try:
        for wanted, uids in (*wants, *_packages(settings, found.packages)):
            leases.append(lease(uids, **wanted, force=settings.force))
    except BaseException:
        for given in reversed(leases):
            with suppress(JoulewiseError):  # its guardian tries on; the refusal is the news
                given.release()
        raise
    return Turned(leases, say)


def _alike(
    settings: Settings, found: Sequence[FoundGpu]
) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """GPUs that get the same values, together."""
    clocks = {"sm_clock_mhz": settings.sm_clock_mhz, "mem_clock_mhz": settings.mem_clock_mhz}
    by_limit: dict[float | None, list[str]] = {}
    for gpu in found:
        by_limit.setdefault(_limit_w(settings.power_limit, gpu), []).append(gpu.uid)
    for limit_w, uids in by_limit.items():
        yield {"power_limit_w": limit_w, **clocks}, uids


def _packages(
    settings: Settings, found: Sequence[FoundCpu]
) -> Iterator[tuple[dict[str, Any], list[str]]]:
    if settings.cpu_limit_w is None:
        return
    if not found:
        raise DeviceError(
            "no CPU package takes a power limit here", "see what `joulewise doctor` says of cpu0"
        )
    yield {"power_limit_w": settings.cpu_limit_w}, [package.uid for package in found]


def _limit_w(asked: str | None, gpu: FoundGpu) -> float | None:
    if asked is None:
        return None
    value, unit = _parsed(asked)
    return _share_w(value, gpu) if unit == _PERCENT else value


def _share_w(percent: float, gpu: FoundGpu) -> float:
    default_w = gpu.default_w
    if default_w is None:
        raise DeviceError(
            f"{gpu.key} does not tell its default power limit", "give --power-limit in watts"
        )
    limit_w = round(percent * default_w / 100, 1)
    if gpu.lowest_w <= limit_w <= gpu.highest_w:
        return limit_w
    low, high = ceil(100 * gpu.lowest_w / default_w), floor(100 * gpu.highest_w / default_w)
    raise OutOfRangeError(
        f"{gpu.key}'s power limit cannot be {limit_w:g} W "
        f"({percent:g} % of its default {default_w:g} W)",
        f"it takes {gpu.lowest_w:g} to {gpu.highest_w:g} W, or {low} to {high} %",
    )


def _parsed(asked: str) -> tuple[float, str]:
    unit = _PERCENT if asked.endswith(_PERCENT) else "W"
    with suppress(ValueError):
        value = float(asked.upper().removesuffix(unit))
        if 0 < value < inf:
            return value, unit
    raise UsageError(
        f"{asked!r} is no power limit", "give watts, or percent of the default: 150 or 70%"
    )

"""Power limits and clocks that hold for the time of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil, floor, inf
from typing import TYPE_CHECKING, Any, Final

from joulewise.errors import DeviceError, JoulewiseError, OutOfRangeError, UsageError

if TYPE_CHECKING:
    from joulewise.control import Lease
    from joulewise.control.client import GuardianGoneError
    from joulewise.control.holds import RestoreOutcome
    from joulewise.session.gpu_discovery import DiscoveredCpu, DiscoveredGpu

_PERCENT: Final = "%"
_MAY_CHANGE: Final = "the settings may not hold until the run ends"
_CONTINUES: Final = "the command goes on without these settings"


@dataclass(frozen=True)
class Settings:
    """Values to set for a run; ``power_limit`` is in watts, or in percent of each GPU's default.

    ``gpus`` are NVML indices; empty means those that the command can see. ``cpu_limit_w`` is the
    limit of each CPU package. None leaves a setting alone.
    """

    power_limit: str | None = None
    sm_clock_mhz: float | None = None
    mem_clock_mhz: float | None = None
    cpu_limit_w: float | None = None
    gpus: tuple[int, ...] = ()
    force: bool = False

    def __post_init__(self) -> None:
        if self.power_limit is not None:
            _parse_limit(self.power_limit)
        if self.gpus and not self.has_gpu_settings:
            raise _without_setting("--gpu")
        if self.force and self.is_nothing:
            raise _without_setting("--force")

    @property
    def has_gpu_settings(self) -> bool:
        controls = self.power_limit, self.sm_clock_mhz, self.mem_clock_mhz
        return any(control is not None for control in controls)

    @property
    def is_nothing(self) -> bool:
        return not self.has_gpu_settings and self.cpu_limit_w is None


def _without_setting(option: str) -> UsageError:
    return UsageError(
        f"{option} needs a setting", f"add --power-limit or a clock, or leave out {option}"
    )


class AppliedSettings:
    """Settings that hold until ``close``, or until this process has ended.

    After ``close``, ``unrestored`` lists what could not be put back. ``unguarded`` is what ``lost``
    has returned, empty while the guardian lives.
    """

    def __init__(self, leases: Sequence[Lease], say: Callable[[str], None]) -> None:
        self._leases = leases
        self._say = say
        self.unguarded = ""
        self.poll_s = None
        self.unrestored: tuple[str, ...] = ()
        self.notes = tuple(note for lease in leases for note in lease.notes)

    def describe(self) -> Iterator[str]:
        """What is set, in one line for all devices with the same values."""
        from joulewise.control.messages import describe_for_run
        from joulewise.data import listed_keys

        devices_by_text: dict[str, list[str]] = {}
        for lease in self._leases:
            by = ", by the guard service" if lease.by_service else ""
            for key, values in lease.enforced.items():
                before = lease.before[key]
                changes = (
                    describe_for_run(control, before[control], v) for control, v in values.items()
                )
                devices_by_text.setdefault(f"{', '.join(changes)} for this run{by}", []).append(key)
        for text, keys in devices_by_text.items():
            yield f"{listed_keys(keys)}: {text}"

    def on_unmeasured(self) -> None:
        """They hold without a measurement, too."""

    def as_json(self) -> dict[str, dict[str, float]]:
        """The values that the devices report, by key and control."""
        return {
            key: {control.value: value for control, value in values.items()}
            for lease in self._leases
            for key, values in lease.enforced.items()
        }

    @property
    def descriptors(self) -> list[int]:
        """Readable when ``lost`` should be called; none once it has said so."""
        if self.unguarded:
            return []
        return sorted({lease.fileno() for lease in self._leases} - {-1})

    def lost(self) -> str:
        """A warning where the guardian of the settings is gone; empty otherwise, and afterwards."""
        gone = next(filter(None, (lease.gone() for lease in self._leases)), None)
        if self.unguarded or gone is None:
            return ""
        self.unguarded = (
            f"{gone.message}: {_MAY_CHANGE}" if gone.outcomes is None else _describe_restored(gone)
        )
        self._say(self.unguarded)
        return self.unguarded

    def close(self) -> None:
        """Put everything back; what could not be is said and added to ``unrestored``."""
        leases, self._leases = self._leases, ()
        for lease in reversed(leases):
            try:
                outcomes = lease.release()
            except JoulewiseError as error:  # noqa: PERF203  # the others go back all the same
                line = f"{error.message}; {error.hint}"
                self.unrestored += (line,)
                self._say(line)
            else:
                self._report_outcomes(outcomes)

    def _report_outcomes(self, outcomes: Sequence[RestoreOutcome]) -> None:
        from joulewise.control.messages import describe

        for outcome in outcomes:
            if not outcome.is_well:
                self._say(describe(outcome))


def _describe_restored(gone: GuardianGoneError) -> str:
    """As in "the guard service ended and put gpu0's power limit back to 300 W"."""
    from joulewise.control.holds import RestoreOutcome, RestoreResult
    from joulewise.control.messages import describe

    outcomes = [RestoreOutcome.from_json(each) for each in gone.outcomes or ()]
    is_put = all(each.end is RestoreResult.RESTORED and each.value is not None for each in outcomes)
    how = " and put " if is_put else ": "
    return f"{gone.message}{how}{', '.join(map(describe, outcomes))}; {_CONTINUES}"


def apply_settings(
    settings: Settings, environ: Mapping[str, str], say: Callable[[str], None]
) -> AppliedSettings:
    """Apply all settings, or none where one of them is refused."""
    from joulewise.control import lease
    from joulewise.session.gpu_discovery import discover_settable, select_gpus

    found = discover_settable(environ)
    requests = (
        _group_by_limit(settings, select_gpus(found.gpus, settings.gpus))
        if settings.has_gpu_settings
        else ()
    )
    leases: list[Lease] = []
    try:
        for wanted, uids in (*requests, *_cpu_settings(settings, found.packages)):
            leases.append(lease(uids, **wanted, force=settings.force))
    except BaseException:
        for given in reversed(leases):
            with suppress(JoulewiseError):  # its guardian tries again; the first error is raised
                given.release()
        raise
    return AppliedSettings(leases, say)


def _group_by_limit(
    settings: Settings, found: Sequence[DiscoveredGpu]
) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """The values to set and the uids of all GPUs that get them."""
    clocks = {"sm_clock_mhz": settings.sm_clock_mhz, "mem_clock_mhz": settings.mem_clock_mhz}
    by_limit: dict[float | None, list[str]] = {}
    for gpu in found:
        by_limit.setdefault(_limit_w(settings.power_limit, gpu), []).append(gpu.uid)
    for limit_w, uids in by_limit.items():
        yield {"power_limit_w": limit_w, **clocks}, uids


def _cpu_settings(
    settings: Settings, found: Sequence[DiscoveredCpu]
) -> Iterator[tuple[dict[str, Any], list[str]]]:
    if settings.cpu_limit_w is None:
        return
    if not found:
        raise DeviceError(
            "no CPU package here has a power limit that can be set", "run `joulewise doctor`"
        )
    yield {"power_limit_w": settings.cpu_limit_w}, [package.uid for package in found]


def _limit_w(text: str | None, gpu: DiscoveredGpu) -> float | None:
    if text is None:
        return None
    value, unit = _parse_limit(text)
    return _percent_to_w(value, gpu) if unit == _PERCENT else value


def _percent_to_w(percent: float, gpu: DiscoveredGpu) -> float:
    default_w = gpu.default_w
    if default_w is None:
        raise DeviceError(
            f"{gpu.key} does not report its default power limit", "give --power-limit in watts"
        )
    limit_w = round(percent * default_w / 100, 1)
    if gpu.lowest_w <= limit_w <= gpu.highest_w:
        return limit_w
    low, high = ceil(100 * gpu.lowest_w / default_w), floor(100 * gpu.highest_w / default_w)
    raise OutOfRangeError(
        f"{gpu.key}'s power limit cannot be {limit_w:g} W "
        f"({percent:g} % of its default {default_w:g} W)",
        f"give {gpu.lowest_w:g} to {gpu.highest_w:g} W, or {low} to {high} %",
    )


def _parse_limit(text: str) -> tuple[float, str]:
    unit = _PERCENT if text.endswith(_PERCENT) else "W"
    with suppress(ValueError):
        value = float(text.upper().removesuffix(unit))
        if 0 < value < inf:
            return value, unit
    raise UsageError(
        f"{text!r} is not a power limit", "give watts or percent of the default: 150 or 70%"
    )

"""One setting on all GPUs of a job, which can be changed while it is held.

A change takes the lease of the new setting on top of the one before and only then releases that:
the guardian lets the upper one inherit the values from before the lower one. So the GPUs go from
one setting to the next without a moment in between, and the values from before the first are put
back at the end, also where this process is killed.

A setting that changes nothing would free the GPU for another tuner. Therefore a power limit is
leased at its own value as long as the tuning lasts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NoReturn

from joulewise.control import Lease, lease
from joulewise.data.sweeps import MEM_CLOCK, POWER_LIMIT, SM_CLOCK
from joulewise.errors import JoulewiseError, NotSupportedError, PermissionDeniedError

if TYPE_CHECKING:
    from joulewise.optimise.live.policy.response_model import TuningCandidate
    from joulewise.session.gpu_discovery import DiscoveredGpu

_CONTROLS: Final = (POWER_LIMIT, SM_CLOCK, MEM_CLOCK)


class NotReleasedError(JoulewiseError):
    """A setting is in force, and the lease of the one before it could not be released."""


class SettingLease:
    """Holds a setting on GPUs until ``close``, or until this process has ended."""

    def __init__(self, gpus: Sequence[DiscoveredGpu], *, force: bool = False) -> None:
        self._gpus = tuple(gpus)
        self._force = force
        self._base: list[Lease] = []
        self._lease: Lease | None = None

    def begin(self, axes: Sequence[str], *, required: bool) -> dict[str, JoulewiseError]:
        """Try the right to change each axis, and keep others from the GPUs' power limits.

        Returns the axes that cannot be changed, with the reason. Raises it where ``required``,
        where none can be changed, and where somebody else holds a setting.
        """
        refused: dict[str, JoulewiseError] = {}
        try:
            for axis in axes:
                if error := self._refusal(axis):
                    refused[axis] = error
            if refused and (required or len(refused) == len(axes)):
                _raise_first(refused)
            if POWER_LIMIT not in axes:
                self._refusal(POWER_LIMIT)  # a GPU whose limit cannot be set is tuned as well
        except BaseException:
            with suppress(JoulewiseError):
                self.close()
            raise
        return refused

    def set(self, candidate: TuningCandidate) -> None:
        """Hold this setting instead of the one before; raises where it is refused.

        Where it is refused, the one before still holds. NotReleasedError: this one holds, and the
        one before could not be let go.
        """
        wanted = {name: getattr(candidate, name) for name in _CONTROLS}
        wanted = {name: value for name, value in wanted.items() if value is not None}
        if not wanted:
            self.clear()
            return
        before = self._lease
        self._lease = lease([gpu.uid for gpu in self._gpus], **wanted, force=self._force)
        if before is not None:
            try:
                before.release()
            except JoulewiseError as error:
                raise NotReleasedError(error.message, error.hint) from error

    def clear(self) -> None:
        """Hold no setting: the values from before come back, and the GPUs stay reserved."""
        before, self._lease = self._lease, None
        if before is not None:
            before.release()

    def guardian_error(self) -> JoulewiseError | None:
        """How the guardian of the settings ended; None while it lives."""
        return next(filter(None, (each.gone() for each in self._leases)), None)

    def close(self) -> None:
        """Put back the values from before; raises what could not be put back, after all others."""
        leases, self._base, self._lease = self._leases, [], None
        first_error = None
        for each in reversed(leases):
            try:
                each.release()
            except JoulewiseError as error:  # noqa: PERF203  # the others go back all the same
                first_error = first_error or error
        if first_error:
            raise first_error

    @property
    def _leases(self) -> list[Lease]:
        return [*self._base, *([self._lease] if self._lease else [])]

    def _refusal(self, axis: str) -> JoulewiseError | None:
        """Why this axis cannot be changed at all; None where it can. Other errors are raised."""
        try:
            self._try_axis(axis)
        except (NotSupportedError, PermissionDeniedError) as error:
            return error
        return None

    def _try_axis(self, axis: str) -> None:
        if axis == POWER_LIMIT:
            for gpu in self._gpus:
                if gpu.now_w is not None:
                    self._base.append(lease(gpu.uid, power_limit_w=gpu.now_w, force=self._force))
            return
        # The highest clock is where the driver is under load anyway.
        for gpu in self._gpus:
            clocks = gpu.sm_clocks_mhz if axis == SM_CLOCK else gpu.mem_clocks_mhz
            lease(gpu.uid, **{axis: clocks[-1]}, force=self._force).release()


def _raise_first(refused: Mapping[str, JoulewiseError]) -> NoReturn:
    raise next(iter(refused.values()))

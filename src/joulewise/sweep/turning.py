"""Whether the knobs of a sweep can be turned at all, tried before its first run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from joulewise.data.sweeps import CPU_LIMIT, MEM_CLOCK, POWER_LIMIT, SM_CLOCK, Setting
from joulewise.session.settings import Settings, turn
from joulewise.sweep.asked import Asked
from joulewise.sweep.space import Space


def try_knobs(
    asked: Asked, space: Space, environ: Mapping[str, str], say: Callable[[str], None]
) -> None:
    """Turn each once and put it back; whoever may not, or finds it held, is told so now.

    The power limit is the reference's, so that what runs there meanwhile is not held back.
    """
    knobs = {**space.settings[0].knobs, **_known(space.reference)}
    limit_w = knobs.get(POWER_LIMIT)
    settings = Settings(
        power_limit=None if limit_w is None else f"{limit_w:g}",
        sm_clock_mhz=knobs.get(SM_CLOCK),
        mem_clock_mhz=knobs.get(MEM_CLOCK),
        cpu_limit_w=knobs.get(CPU_LIMIT),
        gpus=asked.gpus if _turns_gpus(knobs) else (),
        force=asked.force and any(value is not None for value in knobs.values()),
    )
    if not settings.is_nothing:
        turn(settings, environ, say).close()


def _known(setting: Setting) -> dict[str, float | None]:
    return {name: value for name, value in setting.knobs.items() if value is not None}


def _turns_gpus(knobs: Mapping[str, float | None]) -> bool:
    return any(knobs.get(name) is not None for name in (POWER_LIMIT, SM_CLOCK, MEM_CLOCK))

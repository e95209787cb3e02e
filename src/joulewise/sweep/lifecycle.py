"""A sweep from what is asked to what came of it: the parts put together.

Whether the knobs of a sweep can be turned at all, tried before its first run.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from joulewise.data.sweeps import CPU_LIMIT, MEM_CLOCK, POWER_LIMIT, SM_CLOCK, Setting, Sweep
from joulewise.process.failpoints import point
from joulewise.search.strategy import Strategy
from joulewise.session.settings import Settings, turn
from joulewise.sweep.boards import TargetBoard, boards
from joulewise.sweep.execute import News, SweepObserver, execute
from joulewise.sweep.grid import Grid
from joulewise.sweep.lock import SignalInterrupt, told_of_signals
from joulewise.sweep.runners.runner import Runner, lanes
from joulewise.sweep.space import Space, is_one_knob, resolve
from joulewise.sweep.spec import SweepSpec
from joulewise.sweep.stored_sweeps import create, cut_off, is_over, load
from joulewise.sweep.validate import check


def try_knobs(
    asked: SweepSpec, space: Space, environ: Mapping[str, str], say: Callable[[str], None]
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


if TYPE_CHECKING:
    from joulewise.sweep.runners.on_ray import Cluster


@dataclass(frozen=True)
class Prepared:
    """A sweep that can start: all that can be wrong with the request has been looked at."""

    asked: SweepSpec
    space: Space
    environ: Mapping[str, str]
    cluster: Cluster | None = None

    @property
    def lanes(self) -> int:
        """How many runs are made at a time."""
        if self.cluster is not None:
            return len(self.cluster.homes)
        return 1 if self.asked.simulated else len(lanes(self.asked, self.space))


def prepare(asked: SweepSpec, environ: Mapping[str, str] | None = None) -> Prepared:
    environ = os.environ if environ is None else environ
    cluster = None
    if asked.on:
        from joulewise.sweep.runners.on_ray import Cluster

        check(asked)  # to reach a cluster takes a while
        cluster = Cluster(asked)
    found = boards(asked, environ) if cluster is None else cluster.boards()
    space = resolve(asked, found, environ)
    strategy(asked, space)  # what cannot be searched is told now
    return Prepared(asked, space, environ, cluster)


def going_on(every: Sequence[Prepared], store: Path, *, new: bool = False) -> list[Path | None]:
    """The sweeps of a request that was cut off or had failures, unless it is to be ``new``."""
    return [None] * len(every) if new else cut_off(store, [it.asked for it in every])


def gpus_of(every: Iterable[Prepared]) -> list[TargetBoard]:
    """Those of this machine that the sweeps use; on a cluster each task has its own."""
    here = (it for it in every if not it.asked.simulated and it.cluster is None)
    return list({gpu.uid: gpu for it in here for gpu in it.space.gpus}.values())


def conduct(
    prepared: Prepared, store: Path, watch: SweepObserver, folder: Path | None = None
) -> Sweep:
    """Make its runs, or those that the sweep in ``folder`` has not made, or that failed."""
    asked, space = prepared.asked, prepared.space
    if folder is not None and is_over(sweep := load(folder)):
        return sweep
    # A signal while knobs are tried ends the sweep once it can say how to go on.
    news: SimpleQueue[News | signal.Signals] = SimpleQueue()
    with told_of_signals(news.put):
        if not asked.simulated and prepared.cluster is None:
            try_knobs(asked, space, prepared.environ, watch.said)
            point("knobs-tried")
        if folder is None:
            folder = create(store, asked, space)
        point("sweep-created")
        chosen = strategy(asked, space, prepared.lanes)
        # Among the limits of one training nearly nothing is beaten in both; trainings differ in
        # more.
        stop_hopeless = asked.adaptive and not is_one_knob(space.points)
        with closing(_runner(prepared, store, folder, watch)) as runner:
            sweep = execute(folder, chosen, runner, watch, stop_hopeless=stop_hopeless, news=news)
    _raise_late_signal(news, sweep)
    for remark in sweep.sure.get("remarks", ()):
        watch.said(remark)
    return sweep


def _raise_late_signal(news: SimpleQueue[News | signal.Signals], sweep: Sweep) -> None:
    """One that came after the last run, when nobody looked for any."""
    with suppress(Empty):
        while True:
            one = news.get_nowait()
            if isinstance(one, signal.Signals):
                raise SignalInterrupt(one, sweep)


def strategy(asked: SweepSpec, space: Space, lanes: int = 1) -> Strategy:
    """What decides which run is next."""
    if not asked.adaptive:
        return Grid(space, asked, lanes)
    # A search takes seconds to import, and most sweeps want none.
    from joulewise.metrics.boundary import View
    from joulewise.metrics.metric import parse
    from joulewise.search.many_axes.bayesian import ManyAxesSearch
    from joulewise.search.one_axis.adaptive import Adaptive

    search = Adaptive if is_one_knob(space.points) else ManyAxesSearch
    return search(
        space.settings,
        space.reference,
        [parse(text) for text in asked.by],
        tolerance=asked.tolerance,
        view=View(asked.boundary, overhead_w=asked.overhead_w, pue=asked.pue),
        max_power_w=_max_power_w(asked, space),
        lanes=lanes,
        warm_up=asked.warm_up,
        seed=asked.seed,
    )


def _max_power_w(asked: SweepSpec, space: Space) -> float | None:
    """Of all GPUs that a run may use."""
    together = 1 if asked.each_gpu or asked.on else len(space.gpus)
    return space.limits_w[2] * together if space.limits_w else None


def _runner(prepared: Prepared, store: Path, folder: Path, watch: SweepObserver) -> Runner:
    asked, space = prepared.asked, prepared.space
    if asked.simulated:
        from joulewise.sweep.runners.virtual import Virtual

        return Virtual(asked, space, store, folder.name)
    if prepared.cluster is not None:
        from joulewise.sweep.runners.on_ray import OnRay

        return OnRay(asked, store, folder, cluster=prepared.cluster, say=watch.said)
    from joulewise.sweep.runners.local import Here

    return Here(
        asked,
        store,
        folder,
        environ=prepared.environ,
        lanes=lanes(asked, space),
        say=watch.said,
    )

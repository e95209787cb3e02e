"""A sweep from what is asked to what came of it: the parts put together."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from joulewise.command.points import point
from joulewise.data.sweeps import Sweep
from joulewise.search.strategy import Strategy
from joulewise.sweep.asked import Asked
from joulewise.sweep.boards import Board, boards
from joulewise.sweep.checks import check
from joulewise.sweep.cut_off import SignalInterrupt, told_of_signals
from joulewise.sweep.execute import News, Watch, execute
from joulewise.sweep.lanes import lanes
from joulewise.sweep.plan import Grid
from joulewise.sweep.runner import Runner
from joulewise.sweep.space import Space, is_one_knob, resolve
from joulewise.sweep.store import create, cut_off, is_over, load
from joulewise.sweep.turning import try_knobs

if TYPE_CHECKING:
    from joulewise.sweep.on_ray import Cluster


@dataclass(frozen=True)
class Prepared:
    """A sweep that can start: all that can be wrong with the request has been looked at."""

    asked: Asked
    space: Space
    environ: Mapping[str, str]
    cluster: Cluster | None = None

    @property
    def lanes(self) -> int:
        """How many runs are made at a time."""
        if self.cluster is not None:
            return len(self.cluster.homes)
        return 1 if self.asked.simulated else len(lanes(self.asked, self.space))


def prepare(asked: Asked, environ: Mapping[str, str] | None = None) -> Prepared:
    environ = os.environ if environ is None else environ
    cluster = None
    if asked.on:
        from joulewise.sweep.on_ray import Cluster

        check(asked)  # to reach a cluster takes a while
        cluster = Cluster(asked)
    found = boards(asked, environ) if cluster is None else cluster.boards()
    space = resolve(asked, found, environ)
    strategy(asked, space)  # what cannot be searched is told now
    return Prepared(asked, space, environ, cluster)


def going_on(every: Sequence[Prepared], store: Path, *, new: bool = False) -> list[Path | None]:
    """The sweeps of a request that was cut off or had failures, unless it is to be ``new``."""
    return [None] * len(every) if new else cut_off(store, [it.asked for it in every])


def gpus_of(every: Iterable[Prepared]) -> list[Board]:
    """Those of this machine that the sweeps use; on a cluster each task has its own."""
    here = (it for it in every if not it.asked.simulated and it.cluster is None)
    return list({gpu.uid: gpu for it in here for gpu in it.space.gpus}.values())


def conduct(prepared: Prepared, store: Path, watch: Watch, folder: Path | None = None) -> Sweep:
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


def strategy(asked: Asked, space: Space, lanes: int = 1) -> Strategy:
    """What decides which run is next."""
    if not asked.adaptive:
        return Grid(space, asked, lanes)
    # A search takes seconds to import, and most sweeps want none.
    from joulewise.metrics.rules import parse
    from joulewise.metrics.view import View
    from joulewise.search.adaptive import Adaptive
    from joulewise.search.several import Several

    search = Adaptive if is_one_knob(space.points) else Several
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


def _max_power_w(asked: Asked, space: Space) -> float | None:
    """Of all GPUs that a run may use."""
    together = 1 if asked.each_gpu or asked.on else len(space.gpus)
    return space.limits_w[2] * together if space.limits_w else None


def _runner(prepared: Prepared, store: Path, folder: Path, watch: Watch) -> Runner:
    asked, space = prepared.asked, prepared.space
    if asked.simulated:
        from joulewise.sweep.virtual import Virtual

        return Virtual(asked, space, store, folder.name)
    if prepared.cluster is not None:
        from joulewise.sweep.on_ray import OnRay

        return OnRay(asked, store, folder, cluster=prepared.cluster, say=watch.said)
    from joulewise.sweep.here import Here

    return Here(
        asked,
        store,
        folder,
        environ=prepared.environ,
        lanes=lanes(asked, space),
        say=watch.said,
    )

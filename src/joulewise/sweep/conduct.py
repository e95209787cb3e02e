"""A sweep from what is asked to what came of it: the parts put together."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from joulewise.data.sweeps import Sweep
from joulewise.search.strategy import Strategy
from joulewise.sweep.asked import Asked
from joulewise.sweep.boards import boards
from joulewise.sweep.execute import Watch, execute
from joulewise.sweep.lanes import lanes
from joulewise.sweep.on_ray import Cluster, OnRay
from joulewise.sweep.plan import Grid
from joulewise.sweep.runner import Runner
from joulewise.sweep.space import Space, resolve
from joulewise.sweep.store import create, unfinished


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
    cluster = Cluster(asked) if asked.on else None
    found = boards(asked, environ) if cluster is None else cluster.boards()
    return Prepared(asked, resolve(asked, found, environ), environ, cluster)


def conduct(prepared: Prepared, store: Path, watch: Watch, *, new: bool = False) -> Sweep:
    """Make its runs: those of an unfinished sweep of which the same was asked, unless ``new``."""
    asked, space = prepared.asked, prepared.space
    folder = None if new else unfinished(store, asked)
    if folder is None:
        folder = create(store, asked, space)
    with closing(_runner(prepared, store, folder, watch)) as runner:
        return execute(folder, strategy(asked, space, prepared.lanes), runner, watch)


def strategy(asked: Asked, space: Space, lanes: int = 1) -> Strategy:
    """What decides which run is next."""
    return Grid(space, asked, lanes)


def _runner(prepared: Prepared, store: Path, folder: Path, watch: Watch) -> Runner:
    asked, space = prepared.asked, prepared.space
    if asked.simulated:
        from joulewise.sweep.virtual import Virtual

        return Virtual(asked, space, store, folder.name)
    if prepared.cluster is not None:
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

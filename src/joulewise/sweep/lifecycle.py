"""A sweep from its spec to its result: prepare, choose a strategy and a runner, execute."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from joulewise.data.sweeps import CPU_LIMIT, MEM_CLOCK, POWER_LIMIT, SM_CLOCK, Sweep, is_one_control
from joulewise.process.failpoints import failpoint
from joulewise.search.strategy import Strategy, require_scipy
from joulewise.session.settings import Settings, apply_settings
from joulewise.sweep.boards import TargetBoard, boards
from joulewise.sweep.execute import Event, SweepObserver, execute
from joulewise.sweep.lock import SignalInterrupt, queue_signals
from joulewise.sweep.runners.runner import Runner, make_slots
from joulewise.sweep.space import Grid, Space, resolve
from joulewise.sweep.spec import SweepSpec
from joulewise.sweep.stored_sweeps import create_sweep, find_sweeps_to_continue, is_over, load_sweep
from joulewise.sweep.validate import check

if TYPE_CHECKING:
    from joulewise.sweep.runners.on_ray import Cluster


def _try_controls(
    spec: SweepSpec, space: Space, environ: Mapping[str, str], say: Callable[[str], None]
) -> None:
    """Set each control once and restore it, before the first run.

    A user who lacks the right, or finds a control leased, learns it now. The power limit is the
    reference's, so that a job which runs there meanwhile is not slowed down.
    """
    reference = {
        name: value for name, value in space.reference.controls.items() if value is not None
    }
    controls = {**space.settings[0].controls, **reference}
    limit_w = controls.get(POWER_LIMIT)
    sets_gpus = any(controls.get(name) is not None for name in (POWER_LIMIT, SM_CLOCK, MEM_CLOCK))
    settings = Settings(
        power_limit=None if limit_w is None else f"{limit_w:g}",
        sm_clock_mhz=controls.get(SM_CLOCK),
        mem_clock_mhz=controls.get(MEM_CLOCK),
        cpu_limit_w=controls.get(CPU_LIMIT),
        gpus=spec.gpus if sets_gpus else (),
        force=spec.force and any(value is not None for value in controls.values()),
    )
    if not settings.is_nothing:
        apply_settings(settings, environ, say).close()


@dataclass(frozen=True)
class PreparedSweep:
    """A sweep that can start: its spec has been checked against the boards and the command."""

    asked: SweepSpec
    space: Space
    environ: Mapping[str, str]
    cluster: Cluster | None = None

    @property
    def lanes(self) -> int:
        """How many runs are made at a time, each in a GPU slot of its own."""
        if self.cluster is not None:
            return len(self.cluster.homes)
        return 1 if self.asked.simulated else len(make_slots(self.asked, self.space))


def prepare(spec: SweepSpec, environ: Mapping[str, str] | None = None) -> PreparedSweep:
    """Resolve a spec against the boards of this machine, a cluster or a simulation.

    Raises:
        JoulewiseError: something in the spec is wrong, or a package that it needs is missing.
    """
    environ = os.environ if environ is None else environ
    cluster = None
    if spec.on:
        from joulewise.sweep.runners.on_ray import Cluster

        check(spec)  # before connecting to the cluster, which takes a while
        cluster = Cluster(spec)
    targets = boards(spec, environ) if cluster is None else cluster.boards()
    space = resolve(spec, targets, environ)
    strategy(spec, space)  # raises where the space cannot be searched
    return PreparedSweep(spec, space, environ, cluster)


def find_continued(
    every: Sequence[PreparedSweep], store: Path, *, new: bool = False
) -> list[Path | None]:
    """The stored sweep that each is to continue; None where it starts, as with ``new`` all do."""
    return (
        [None] * len(every) if new else find_sweeps_to_continue(store, [one.asked for one in every])
    )


def gpus_of(every: Iterable[PreparedSweep]) -> list[TargetBoard]:
    """The GPUs of this machine that the sweeps use; on a cluster each task has its own."""
    local = (one for one in every if not one.asked.simulated and one.cluster is None)
    return list({gpu.uid: gpu for one in local for gpu in one.space.gpus}.values())


def run_sweep(
    prepared: PreparedSweep, store: Path, observer: SweepObserver, folder: Path | None = None
) -> Sweep:
    """Make the runs of a sweep and return it.

    ``folder`` is the stored sweep to continue, with the runs that are missing or have failed. A new
    one is made in ``store`` where it is None.

    Raises:
        CutOffError: a signal has ended the sweep; its finished runs are stored.
        SignalInterrupt: a signal came after the last run.
    """
    spec, space = prepared.asked, prepared.space
    if folder is not None and is_over(sweep := load_sweep(folder)):
        return sweep
    # A signal while controls are tried ends the sweep as soon as there is one to continue.
    events: SimpleQueue[Event] = SimpleQueue()
    with queue_signals(events.put):
        if not spec.simulated and prepared.cluster is None:
            _try_controls(spec, space, prepared.environ, observer.said)
            failpoint("controls-tried")
        if folder is None:
            folder = create_sweep(store, spec, space)
        failpoint("sweep-created")
        chosen = strategy(spec, space, prepared.lanes)
        # Along one control hardly any setting is dominated: what is slower draws less.
        stop_hopeless = spec.adaptive and not is_one_control(space.points)
        with closing(_make_runner(prepared, store, folder, observer)) as runner:
            sweep = execute(
                folder, chosen, runner, observer, stop_hopeless=stop_hopeless, events=events
            )
    with suppress(Empty):  # a signal after the last run
        while True:
            event = events.get_nowait()
            if isinstance(event, signal.Signals):
                raise SignalInterrupt(event, sweep)
    for remark in sweep.sure.get("remarks", ()):
        observer.said(remark)
    return sweep


def strategy(spec: SweepSpec, space: Space, lanes: int = 1) -> Strategy:
    """Make what decides which run is next: a grid, or with ``--adaptive`` a search."""
    if not spec.adaptive:
        return Grid(space, spec, lanes)
    require_scipy()
    # Imported here, since it takes seconds and most sweeps need no search.
    from joulewise.metrics.boundary import View
    from joulewise.metrics.metric import parse
    from joulewise.search.many_axes.bayesian import ManyAxesSearch
    from joulewise.search.objective import Objective
    from joulewise.search.one_axis.adaptive import OneAxisSearch

    objective = Objective(
        tuple(parse(text) for text in spec.by),
        tolerance=spec.tolerance,
        view=View(spec.boundary, overhead_w=spec.overhead_w, pue=spec.pue),
        max_power_w=_max_power_w(spec, space),
        seed=spec.seed,
    )
    search = OneAxisSearch if is_one_control(space.points) else ManyAxesSearch
    return search(space.settings, space.reference, objective, slots=lanes, warm_up=spec.warm_up)


def _max_power_w(spec: SweepSpec, space: Space) -> float | None:
    """The highest power limit of all GPUs that a run uses; None where none can be set."""
    together = 1 if spec.each_gpu or spec.on else len(space.gpus)
    return space.limits_w[2] * together if space.limits_w else None


def _make_runner(
    prepared: PreparedSweep, store: Path, folder: Path, observer: SweepObserver
) -> Runner:
    spec, space = prepared.asked, prepared.space
    if spec.simulated:
        from joulewise.sweep.runners.virtual import VirtualRunner

        return VirtualRunner(spec, space, store, folder.name)
    if prepared.cluster is not None:
        from joulewise.sweep.runners.on_ray import RayRunner

        return RayRunner(spec, store, folder, cluster=prepared.cluster, say=observer.said)
    from joulewise.sweep.runners.local import LocalRunner

    slots = make_slots(spec, space)
    return LocalRunner(
        spec, store, folder, environ=prepared.environ, slots=slots, say=observer.said
    )

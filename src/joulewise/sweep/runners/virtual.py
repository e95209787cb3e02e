"""Runs in virtual time: hours of simulated training in a second, stored like any other run."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

from joulewise.analyse.stored_result import read_result
from joulewise.data import DeviceInfo, Kind, Quantity, RunResult, SensorProfile, Source
from joulewise.data.sweeps import (
    MEM_CLOCK,
    POWER_LIMIT,
    SM_CLOCK,
    Planned,
    Setting,
    Trial,
    TrialState,
    control_options,
)
from joulewise.devices.nvidia.sensor_tables import sensor_timing
from joulewise.record.schedule import MIN_COUNTER_RATE_HZ
from joulewise.simulate.boards import load_board, make_unit, restart_unit
from joulewise.simulate.model import Board, ControlSettings, Workload
from joulewise.simulate.physics.board_state import settled_c
from joulewise.simulate.physics.integrate import equilibrium_c
from joulewise.simulate.virtual import Start, simulate
from joulewise.store.manifest import RecordedDevice
from joulewise.store.runs import creation_error, new_directory
from joulewise.sweep.runners.cool_down import parse_cool_down
from joulewise.sweep.runners.early_stop import EndReason, summarise_probe
from joulewise.sweep.runners.runner import IsHopeless
from joulewise.sweep.runners.virtual_record import VirtualRecord, describe_host, find_end, write
from joulewise.sweep.space import Space
from joulewise.sweep.spec import SimulationSpec, SweepSpec
from joulewise.sweep.trial import find_finished, tags, trial_of
from joulewise.sweep.workload import load

_TERMINATED: Final = 143  # exit status of a command that SIGTERM ended: 128 + 15
_KEY: Final = "gpu0"


class VirtualRunner:
    """A :class:`~joulewise.sweep.runners.runner.Runner` on one simulated board.

    The noise of a run follows from the sweep's seed, the setting and the block, never from the
    order of the runs.
    """

    slots = 1

    def __init__(self, spec: SweepSpec, space: Space, store: Path, sweep_id: str) -> None:
        assert spec.simulated is not None  # noqa: S101  # the caller has checked it
        self._spec = spec
        self._simulated: SimulationSpec = spec.simulated
        self._store = store
        self._sweep_id = sweep_id
        self._board = load_board(self._simulated.gpu)
        self._unit = make_unit(self._board, spec.seed)
        self._device = _device(self._board, spec.seed)
        self._host = describe_host()
        self._workload = cache(self._load)
        for setting in space.points:
            self._workload(_words(setting))

    def run(self, planned: Planned, is_hopeless: IsHopeless | None = None) -> Trial:
        setting = planned.setting
        seed = _seed(self._spec.seed, setting, planned.block)
        controls = _controls(setting, self._board)
        workload = self._workload(_words(setting))
        played = simulate(
            workload,
            restart_unit(self._unit, seed),
            controls,
            seed=seed,
            run_noise=self._simulated.run_noise,
            start=self._start(workload, controls),
        )
        end_ns, reason = find_end(played, planned, self._spec.timeout_s, is_hopeless)
        record = VirtualRecord(
            played,
            replace(self._device, settings=_settings(controls)),
            # Hundreds of runs of many hours are simulated: the rate that eight GPUs would have.
            self._spec.rate_hz or MIN_COUNTER_RATE_HZ,
            seed,
            end_ns,
            _TERMINATED if reason else 0,
        )
        return self._make_trial(planned, self._store_run(record, planned), reason)

    def adopt(self, planned: Planned) -> Trial | None:
        _, trial_tag = tags(self._sweep_id, planned)
        results = map(read_result, self._finished_runs.get(trial_tag, ()))
        return next((self._make_trial(planned, result, None) for result in results if result), None)

    def stop(self) -> None:
        """Do nothing: no run takes long."""

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def _store_run(self, record: VirtualRecord, planned: Planned) -> RunResult:
        """Write and analyse a run; a full disk ends the sweep, since no later run would fit."""
        run = None
        try:
            run = new_directory(self._store)
            return write(run, record, **self._describe(planned, record.played.workload))
        except OSError as error:
            if run:
                shutil.rmtree(run, ignore_errors=True)
            raise creation_error("run", self._store, error) from None

    @cached_property
    def _finished_runs(self) -> dict[str, list[Path]]:
        return find_finished(self._store, self._sweep_id)

    def _load(self, words: tuple[tuple[str, str], ...]) -> Workload:
        return load(self._simulated, dict(words), self._board, self._store)

    def _start(self, workload: Workload, controls: ControlSettings) -> Start | float:
        """How warm the board is at the start, or the seconds it has idled since the last run.

        The temperature falls exponentially to the idle one (Newton's law of cooling).
        """
        cool_down, board = parse_cool_down(self._spec.cool_down), self._board
        if cool_down.below_c is None:
            return cool_down.wait_s or "warm"
        warm_c = equilibrium_c(self._unit, workload.step, controls)
        idle_c = settled_c(board.thermal, board.idle.context_w)
        if warm_c <= cool_down.below_c:
            return "warm"
        if cool_down.below_c <= idle_c:
            return "cold"
        share = (cool_down.below_c - idle_c) / (warm_c - idle_c)
        return -board.thermal.time_constant_s * math.log(share)

    def _describe(self, planned: Planned, workload: Workload) -> dict[str, Any]:
        setting, simulated = planned.setting, self._simulated
        like = ("--like", simulated.like) if simulated.like else ("--workload", workload.name)
        own = (word for name, value in _words(setting) for word in ("--set", f"{name}={value}"))
        controls = control_options(setting, (), force=False)
        return {
            **self._host,
            "arguments": ("joulewise", "sweep", "--sim", simulated.gpu, *like, *controls, *own),
            "tags": tags(self._sweep_id, planned),
            "options": {
                "settings": {_KEY: {k: v for k, v in setting.controls.items() if v is not None}},
                "simulated": {
                    "gpu": simulated.gpu,
                    "workload": workload.name,
                    "batch_size": workload.batch_size,
                    "epochs": workload.epochs,
                    "source": workload.source,
                },
            },
        }

    def _make_trial(self, planned: Planned, result: RunResult, reason: EndReason | None) -> Trial:
        trial = self._add_samples(trial_of(planned, result))
        if reason is EndReason.TOO_LONG:
            why = f"{reason.value}: {self._spec.timeout_s:g} s"
            return replace(trial, state=TrialState.FAILED, reason=why)
        if reason is EndReason.DOMINATED:
            return replace(trial, state=TrialState.STOPPED, reason=reason.value)
        if planned.look_s is not None:
            return summarise_probe(trial, result, self._store / result.id)
        return trial

    def _add_samples(self, trial: Trial) -> Trial:
        """Count samples as well as steps: the batch size of a simulated workload is known."""
        steps = trial.spans.get("step")
        if steps is None:
            return trial
        batch_size = self._workload(_words(trial.setting)).batch_size
        samples = replace(steps, count=steps.count * batch_size)
        return replace(trial, spans={**trial.spans, "sample": samples})


def _seed(sweep: int, setting: Setting, block: int) -> int:
    text = json.dumps([sweep, sorted(setting.as_json().items(), key=str), block])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")


def _controls(setting: Setting, board: Board) -> ControlSettings:
    controls = setting.controls
    limit_w = controls.get(POWER_LIMIT) or board.limits.default_w
    return ControlSettings(limit_w, _lock(controls.get(SM_CLOCK)), _lock(controls.get(MEM_CLOCK)))


def _lock(clock_mhz: float | None) -> tuple[float, float] | None:
    return None if clock_mhz is None else (clock_mhz, clock_mhz)


def _settings(controls: ControlSettings) -> dict[str, float]:
    locks = {SM_CLOCK: controls.sm_lock_mhz, MEM_CLOCK: controls.memory_lock_mhz}
    locked = {name: lock[1] for name, lock in locks.items() if lock}
    return {POWER_LIMIT: controls.limit_w, **locked}


def _words(setting: Setting) -> tuple[tuple[str, str], ...]:
    return tuple(setting.words.items())


def _device(board: Board, seed: int) -> RecordedDevice:
    """Describe the board as a recorder would: its sensor by the tables, which are not exact."""
    profile = sensor_timing(board.architecture, board.compute_capability, Quantity.POWER)
    sources = {Quantity.POWER.value: Source.SIMULATED}
    if board.sensor.counter_period_s:
        sources[Quantity.ENERGY.value] = Source.SIMULATED
    return RecordedDevice(
        DeviceInfo(
            key=_KEY,
            kind=Kind.GPU,
            name=f"{board.name} (simulated)",
            uid=f"simulated-{board.key}-{seed}",
            vendor="nvidia",
            note="no real board: the readings are those of a simulated sensor",
            memory_b=board.memory_b,
            is_simulated=True,
        ),
        sources,
        SensorProfile(profile.update_period_s, profile.window_s),
        maximum_w=board.limits.maximum_w,
        default_limit_w=board.limits.default_w,
    )

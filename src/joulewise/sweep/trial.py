"""A measured run as one trial of a sweep.

How a sweep's runs are known in the store.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import Any, Final

from joulewise.data import Energy, PowerScope, RunResult, SpanResult, total, total_of_one
from joulewise.data.sweeps import Planned, Trial, TrialState, Work
from joulewise.errors import JoulewiseError
from joulewise.store.index.conditions import any_matches, text_is
from joulewise.store.index.run_entry import find_runs
from joulewise.store.manifest import read_manifest

GPU: Final = "gpu"
REST: Final = "rest"
_COMPLETE: Final = "complete"


def trial_of(planned: Planned, result: RunResult, *, log_tail: str = "") -> Trial:
    """What the run came to; one that did not end well is a failed trial, and says how."""
    used = [key for key in result.counted if is_gpu(key)]
    is_done = result.state == _COMPLETE and result.exit_code == 0
    about, devices = result.details.get("about", {}), result.details.get("devices", {})
    loads = [result.details.get("under_load", {}).get(key, {}) for key in used]
    return Trial(
        setting=planned.setting,
        block=planned.block,
        state=TrialState.DONE if is_done else TrialState.FAILED,
        lane=planned.lane,
        look_s=planned.look_s,
        run=result.id,
        gpu=",".join(devices[key]["uid"] for key in used if key in devices),
        host=about.get("host", ""),
        start_wall_ns=result.start_wall_ns or 0,
        time_s=result.time_s,
        energy=energies([result.run], result.counted),
        bounds=lower_bounds([result.run], result.counted),
        spans=_works(result),
        capped=_mean(loads, "capped"),
        clock_mhz=_mean(loads, "sm_clock_mhz"),
        temperature_c=_mean(loads, "temperature_c"),
        warnings=tuple(dict.fromkeys(warning.code.value for warning in result.warnings)),
        doubtful=tuple(
            dict.fromkeys(warning.code.value for warning in result.warnings if warning.is_doubtful)
        ),
        exit_code=result.exit_code,
        reason="" if is_done else _reason(result),
        log_tail="" if is_done else log_tail,
        is_module=bool(used) and all(_is_module(devices.get(key, {})) for key in used),
    )


def _is_module(device: Mapping[str, Any]) -> bool:
    return bool(device.get("power_scope") == PowerScope.MODULE.value)


def failed(planned: Planned, reason: str) -> Trial:
    """What came to nothing at all."""
    return Trial(
        planned.setting,
        planned.block,
        TrialState.FAILED,
        planned.lane,
        planned.look_s,
        start_wall_ns=time.time_ns(),
        reason=reason,
    )


def energies(spans: Sequence[SpanResult], counted: Iterable[str]) -> dict[str, Energy]:
    """What these spans took together, in GPUs and rest, each where all of it is known.

    A lower bound is none of a trial's energies: settings would be ranked by what was not read.
    """
    totals = _totals(spans, counted)
    return {part: whole for part, whole in totals.items() if whole and not whole.at_least}


def lower_bounds(spans: Sequence[SpanResult], counted: Iterable[str]) -> dict[str, Energy]:
    """The others, of which only a part could be read."""
    totals = _totals(spans, counted)
    return {part: whole for part, whole in totals.items() if whole and whole.at_least}


def _totals(spans: Sequence[SpanResult], counted: Iterable[str]) -> dict[str, Energy | None]:
    by_part: dict[str, list[Energy | None]] = {}
    for key in counted:
        drawn = [span.devices[key].energy for span in spans]
        by_part.setdefault(GPU if is_gpu(key) else REST, []).append(total_of_one(drawn))
    return {part: total(drawn) for part, drawn in by_part.items()}


def _works(result: RunResult) -> dict[str, Work]:
    """By name; joules only of spans that the result has one by one."""
    kept: dict[str, list[SpanResult]] = {}
    for span in result.spans:
        if span.span.closed:
            kept.setdefault(span.span.name, []).append(span)
    works = {}
    for name, summary in result.details.get("spans", {}).items():
        count, mean_s = summary["count"], summary["time_s"]["mean"]
        if count and mean_s is not None:
            spans = kept.get(name, [])
            joules = energies(spans, result.counted) if len(spans) == count else {}
            works[name] = Work(count, count * mean_s, joules)
    return works


def _reason(result: RunResult) -> str:
    if result.state != _COMPLETE:
        return f"the run was {result.state}"
    return f"the command ended with status {result.exit_code}"


def _mean(loads: Sequence[Mapping[str, Any]], name: str) -> float | None:
    known = [load[name] for load in loads if load.get(name) is not None]
    return sum(known) / len(known) if known else None


def is_gpu(key: str) -> bool:
    return key.rpartition("/")[2].startswith(GPU)


_SWEEP: Final = "sweep:"


def tags(sweep_id: str, planned: Planned) -> tuple[str, str]:
    """What the run of this plan is tagged with: its sweep, and its place in it."""
    return f"{_SWEEP}{sweep_id}", f"trial:{_digest(planned)}"


def log_name(planned: Planned) -> str:
    """What the run says is in a file of this name."""
    return f"{planned.block}-{_digest(planned)}.log"


def finished(store: Path, sweep_id: str) -> dict[str, list[Path]]:
    """The sweep's runs that came to an end in order, by the tag of their place in it."""
    found: dict[str, list[Path]] = {}
    tagged = any_matches("tags", escape(f"{_SWEEP}{sweep_id}"))
    for run in find_runs(store, tagged & text_is("state", "complete")):
        for tag in run.tags:
            found.setdefault(tag, []).append(run.path)
    return found


def names(store: Path) -> set[str]:
    """What lies in the store, run or not."""
    try:
        return set(os.listdir(store))  # noqa: PTH208  # of thousands, the names are enough
    except OSError:
        return set()


def run_of(store: Path, sweep_id: str, planned: Planned, before: Collection[str]) -> Path | None:
    """The run that is being made for it, which was not there ``before``: one that failed was."""
    wanted = set(tags(sweep_id, planned))
    for name in sorted(names(store).difference(before)):
        with suppress(JoulewiseError):
            if wanted <= set(read_manifest(store / name).tags):
                return store / name
    return None


def _digest(planned: Planned) -> str:
    told = [planned.setting.as_json(), planned.block, planned.look_s]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:12]

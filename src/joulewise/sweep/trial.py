"""A measured run as one trial of a sweep, and the tags by which a sweep's runs are found."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from glob import escape
from pathlib import Path
from typing import Any, Final

from joulewise.data import Energy, PowerScope, RunResult, SpanResult, total, total_of_one
from joulewise.data.sweeps import Planned, Trial, TrialState, Work
from joulewise.store.index.conditions import any_matches, text_is
from joulewise.store.index.run_entry import find_runs

GPU: Final = "gpu"
REST: Final = "rest"
_COMPLETE: Final = "complete"
_SWEEP_TAG: Final = "sweep:"


def trial_of(planned: Planned, result: RunResult, *, log_tail: str = "") -> Trial:
    """Make the trial of a measured run; failed, with a reason, where the run did not succeed."""
    used = [key for key in result.counted if _is_gpu(key)]
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
        is_module=bool(used)
        and all(devices.get(key, {}).get("power_scope") == PowerScope.MODULE.value for key in used),
    )


def failed(planned: Planned, reason: str) -> Trial:
    """Make the trial of a run that has no result at all."""
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
    """Energy of these spans together, in the GPUs and in the rest, where all of it is known.

    Lower bounds are left out: settings would be ranked by what could not be read.
    """
    totals = _totals(spans, counted)
    return {part: whole for part, whole in totals.items() if whole and not whole.at_least}


def lower_bounds(spans: Sequence[SpanResult], counted: Iterable[str]) -> dict[str, Energy]:
    """The energies of which only a part could be read."""
    totals = _totals(spans, counted)
    return {part: whole for part, whole in totals.items() if whole and whole.at_least}


def _totals(spans: Sequence[SpanResult], counted: Iterable[str]) -> dict[str, Energy | None]:
    by_part: dict[str, list[Energy | None]] = {}
    for key in counted:
        drawn = [span.devices[key].energy for span in spans]
        by_part.setdefault(part_of(key), []).append(total_of_one(drawn))
    return {part: total(drawn) for part, drawn in by_part.items()}


def _works(result: RunResult) -> dict[str, Work]:
    """Count, time and energy of spans by name; no energy where the result omits some of them."""
    closed: dict[str, list[SpanResult]] = {}
    for span in result.spans:
        if span.span.closed:
            closed.setdefault(span.span.name, []).append(span)
    works = {}
    for name, summary in result.details.get("spans", {}).items():
        count, mean_s = summary["count"], summary["time_s"]["mean"]
        if count and mean_s is not None:
            spans = closed.get(name, [])
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


def _is_gpu(key: str) -> bool:
    return key.rpartition("/")[2].startswith(GPU)


def part_of(key: str) -> str:
    """The part of the machine, GPUs or rest, that the device with this key belongs to."""
    return GPU if _is_gpu(key) else REST


def tags(sweep_id: str, planned: Planned) -> tuple[str, str]:
    """The two tags of the run of this plan: its sweep, and its trial within the sweep."""
    return f"{_SWEEP_TAG}{sweep_id}", f"trial:{_digest(planned)}"


def log_name(planned: Planned) -> str:
    """Name of the file with the output of the run of this plan."""
    return f"{planned.block}-{_digest(planned)}.log"


def find_finished(store: Path, sweep_id: str) -> dict[str, list[Path]]:
    """The complete runs of a sweep by their tags."""
    by_tag: dict[str, list[Path]] = {}
    is_tagged = any_matches("tags", escape(f"{_SWEEP_TAG}{sweep_id}"))
    for run in find_runs(store, is_tagged & text_is("state", _COMPLETE)):
        for tag in run.tags:
            by_tag.setdefault(tag, []).append(run.path)
    return by_tag


def _digest(planned: Planned) -> str:
    identity = [planned.setting.as_json(), planned.block, planned.look_s]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:12]

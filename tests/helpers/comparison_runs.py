"""Runs made of numbers, for tests of what is read from two of them."""

from dataclasses import replace

from joulewise.compare.quantities import ComparedRun
from joulewise.compare.runs import Side
from joulewise.data import (
    DeviceInfo,
    Energy,
    Kind,
    RunResult,
    Source,
    Span,
    SpanResult,
    Use,
    total,
)
from joulewise.store.manifest import CommandRecord, Manifest, RecordedDevice

S = 10**9
KINDS = {"gpu": Kind.GPU, "cpu": Kind.CPU, "dram": Kind.DRAM}


def joules(value, source=Source.MEASURED, *, sampling=0.001, gain=0.05):
    return Energy(value, sampling * value, gain * value, source)


def made(
    run_id="r",
    *,
    energies=None,
    counted=None,
    time_s=100.0,
    epochs=2,
    steps=0,
    boards=None,
    **changed,
):
    """A run that took so many joules on gpu0, in epochs of equal length with ``steps`` each."""
    energies = {"gpu0": joules(20_000.0)} if energies is None else energies
    counted = tuple(energies) if counted is None else counted
    devices = tuple(
        RecordedDevice(
            DeviceInfo(key, KINDS[key.rstrip("0123456789")], f"made-up {key}", uid, "nvidia"),
            {"energy_j": energy.source},
            settings={"power_limit_w": 300.0} if key.startswith("gpu") else {},
        )
        for key, energy in energies.items()
        for uid in [(boards or {}).get(key, f"uid-{key}")]
    )
    defaults = {
        "id": run_id,
        "commands": (CommandRecord(1, ("python", "train.py"), 0, round(time_s * S), 0),),
        "cwd": "/home/me",
        "rate_hz": 10.0,
        "wall_start_ns": 0,
        "monotonic_start_ns": 0,
        "boot_id": "boot",
        "devices": devices,
        "host": {"name": "node1"},
    }
    result = {name: changed.pop(name) for name in ("exit_code", "state") if name in changed}
    manifest = Manifest(**{**defaults, **changed})
    return ComparedRun.of(
        manifest,
        _result(run_id, energies, counted, time_s, epochs=epochs, steps=steps, changed=result),
    )


def side(name, *runs):
    return Side(name, runs)


def _result(run_id, energies, counted, time_s, *, epochs, steps, changed):
    def part(name, index, start_s, end_s):
        share = (end_s - start_s) / time_s
        uses = {
            key: Use(
                replace(
                    it,
                    value=it.value * share,
                    error_sampling=it.error_sampling * share,
                    error_gain=it.error_gain * share,
                )
            )
            for key, it in energies.items()
        }
        whole = total(uses[key].energy for key in counted)
        span = Span(name, index, round(start_s * S), round(end_s * S))
        return SpanResult(span, whole, uses)

    def equal(name, number):
        each = time_s / number
        return tuple(part(name, at, at * each, (at + 1) * each) for at in range(number))

    spans = {
        name: equal(name, number)
        for name, number in (("epoch", epochs), ("step", steps * max(epochs, 1)))
        if number
    }
    result = {
        name: {
            "count": len(those),
            "time_s": {"mean": time_s / len(those)},
            "energy_j": {"mean": those[0].total.value if those[0].total else None},
        }
        for name, those in spans.items()
    }
    return RunResult(
        **{
            "id": run_id,
            "exit_code": 0,
            "state": "complete",
            "start_monotonic_ns": 0,
            "run": part("run", None, 0, time_s),
            "spans": tuple(it for those in spans.values() for it in those),
            "counted": counted,
            "details": {"spans": result},
            **changed,
        }
    )

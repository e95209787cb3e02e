"""``joulewise calibrate``: what a board's power sensor really does."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from joulewise.cli.options import Number, Whole
from joulewise.cli.output import STDOUT, console, json_option, pass_store, write_json
from joulewise.errors import JoulewiseError, UsageError

if TYPE_CHECKING:
    from joulewise.calibrate.board import Calibration
    from joulewise.calibrate.gain import WallMeter
    from joulewise.devices import Device

EPILOG = """\b
Examples:
  joulewise calibrate
  joulewise calibrate --gpu 0 --meter wall.csv --psu-efficiency 0.94±0.01
  joulewise calibrate --run last --meter wall.csv --psu-efficiency 0.94±0.01
  joulewise sim --gpu v100,a100 -- joulewise calibrate
"""


@click.command(epilog=EPILOG)
@click.option(
    "--gpu",
    "gpus",
    type=Whole(min=0),
    multiple=True,
    metavar="N",
    help="This GPU, by its NVML index; may be repeated.  [default: all]",
)
@click.option(
    "--seconds",
    type=Number(min=8, max=3600),
    metavar="SECONDS",
    default=30.0,
    show_default=True,
    help="How long each GPU is loaded; the errors shrink with time.",
)
@click.option(
    "--meter",
    "meter_path",
    type=click.Path(path_type=Path),
    metavar="FILE.csv",
    help="A wall meter's log (time,power_w) that goes on meanwhile, or went on during --run.",
)
@click.option(
    "--psu-efficiency",
    "efficiency",
    metavar="SHARE±ERROR",
    help="Of the power supply between the meter and the GPU, such as 0.94±0.01.",
)
@click.option("--run", "which", metavar="RUN", help="Take the gain from this run; load nothing.")
@click.option("--force", is_flag=True, help="Also while other processes use the GPU.")
@json_option
@pass_store
def command(
    store: Path,
    *,
    gpus: tuple[int, ...],
    seconds: float,
    meter_path: Path | None,
    efficiency: str | None,
    which: str | None,
    force: bool,
    json_path: str | None,
) -> int:
    """Find a GPU's sensor timing, and with a wall meter its gain, and keep them as its card.

    Bursts of load show how often the sensor updates, over what time it averages and how late it
    is. Later runs take their errors from the card, as long as board and driver are the same.
    No power limit or clock is changed. The exit status is 0 where any GPU could be calibrated.
    """
    if meter_path is None and (efficiency is not None or which is not None):
        option = "--run" if which is not None else "--psu-efficiency"
        raise UsageError(f"{option} is about a meter, and there is none", "add --meter FILE.csv")
    meter = None if meter_path is None else _meter(meter_path, efficiency)
    if which is not None and meter is not None:
        boards = _from_run(store, which, meter, gpus)
    else:
        boards = _from_load(gpus, seconds, meter, force=force)
    from joulewise.report.terminal.calibration import as_json, draw

    if json_path:
        write_json(as_json(boards), json_path)
    if json_path != STDOUT:
        draw(boards, console(), simulated="JOULEWISE_SIM" in os.environ)
    return 0 if any(board.tells for board in boards) else JoulewiseError.exit_status


def _from_load(
    gpus: tuple[int, ...], seconds: float, meter: WallMeter | None, *, force: bool
) -> list[Calibration]:
    from joulewise.devices import discover

    discovery = discover()
    try:
        devices = _chosen(discovery.devices, gpus)
        return [
            _calibrated(device, seconds, meter, force=force)
            if len(devices) == 1
            else _calibrated_or_why(device, seconds, meter, force=force)
            for device in devices
        ]
    finally:
        discovery.close()


def _calibrated_or_why(
    device: Device, seconds: float, meter: WallMeter | None, *, force: bool
) -> Calibration:
    """One GPU that cannot be calibrated must not keep the others from it."""
    from joulewise.calibrate.board import Calibration
    from joulewise.data import Quantity, Unavailable

    try:
        return _calibrated(device, seconds, meter, force=force)
    except JoulewiseError as error:
        return Calibration(device.info, {Quantity.POWER: Unavailable(error.message, error.hint)})


def _calibrated(
    device: Device, seconds: float, meter: WallMeter | None, *, force: bool
) -> Calibration:
    from dataclasses import replace

    from joulewise.calibrate.bench import Rig
    from joulewise.calibrate.board import SENSORS, calibrate, keep
    from joulewise.calibrate.gain import gain_from_waves
    from joulewise.record.sensor_profiles import table_card

    tables = {quantity: table_card(device, quantity) for quantity in SENSORS}
    with Rig(device, force=force) as rig:
        timing = _progress(f"{device.info.key}: timing")
        found = calibrate(device.info, tables, rig, seconds, progress=timing)
        if meter is not None:
            gain = gain_from_waves(rig, meter, progress=_progress(f"{device.info.key}: gain"))
            found = replace(found, gain=gain.gain, gain_how=gain.how)
    return keep(found, os.environ, _now())


def _from_run(
    store: Path, which: str, meter: WallMeter, gpus: tuple[int, ...]
) -> list[Calibration]:
    from joulewise.calibrate.board import Calibration, keep
    from joulewise.calibrate.gain import gains_from_run
    from joulewise.store.runs import find

    found = gains_from_run(find(store, which), meter)
    wanted = {f"gpu{number}" for number in gpus}
    if lacking := wanted - {info.key for info in found}:
        raise UsageError(f"the run has no trace of {min(lacking)}", "joulewise show lists its GPUs")
    return [
        keep(Calibration(info, gain=gain.gain, gain_how=gain.how), os.environ, _now())
        for info, gain in found.items()
        if not wanted or info.key in wanted
    ]


def _chosen(devices: tuple[Device, ...], gpus: tuple[int, ...]) -> list[Device]:
    from joulewise.data import Kind

    found = {device.info.key: device for device in devices if device.info.kind is Kind.GPU}
    if not found:
        raise UsageError(
            "there is no GPU to calibrate",
            "joulewise doctor says why; to try: joulewise sim --gpu v100 -- joulewise calibrate",
        )
    wanted = [f"gpu{number}" for number in dict.fromkeys(gpus)] or list(found)
    for key in wanted:
        if key not in found:
            raise UsageError(f"there is no {key}", f"visible are {', '.join(found)}")
    return [found[key] for key in wanted]


def _meter(path: Path, efficiency: str | None) -> WallMeter:
    from joulewise.calibrate.gain import USUAL_EFFICIENCY, WallMeter
    from joulewise.record.sensor_profiles import CalibratedValue

    if efficiency is None:
        return WallMeter(path, USUAL_EFFICIENCY)
    told = re.fullmatch(r"\s*([\d.]+)\s*(?:(?:±|\+-|\+/-)\s*([\d.]+))?\s*", efficiency)
    try:
        share, error = (float(part or "0.01") for part in told.groups()) if told else (0.0, 0.0)
    except ValueError:
        share = error = 0.0
    if not (0.3 <= share <= 1 and error < share / 2):
        raise UsageError(
            f"a power supply's efficiency cannot be {efficiency!r}",
            "give it as a share of 1 with its error, such as 0.94±0.01",
        )
    return WallMeter(path, CalibratedValue(share, error))


def _progress(what: str) -> Callable[[float], None]:
    """A line that is written over, on a terminal only."""
    if not sys.stderr.isatty():
        return lambda _: None

    def show(share: float) -> None:
        done = min(1.0, share)
        sys.stderr.write(f"\r{what} {done:4.0%}" if done < 1 else "\r\x1b[K")
        sys.stderr.flush()

    return show


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")

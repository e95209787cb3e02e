"""``joulewise calibrate``: measures what a GPU's power sensor really does."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from joulewise.cli.options import Number, Whole, number_option
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
@number_option(
    "--gpu",
    "gpus",
    Whole(min=0),
    multiple=True,
    help="Calibrate the GPU with this NVML index; may be repeated. [default: all]",
)
@number_option(
    "--seconds",
    Number(min=8, max=3600),
    metavar="SECONDS",
    default=30.0,
    help="Load each GPU for this long; a longer time gives smaller errors.",
)
@click.option(
    "--meter",
    "meter_path",
    type=click.Path(path_type=Path),
    metavar="FILE.csv",
    help="Log of a wall meter (time,power_w) that records meanwhile, or recorded during --run.",
)
@click.option(
    "--psu-efficiency",
    "efficiency",
    metavar="SHARE±ERROR",
    help="Efficiency of the power supply between meter and GPU, such as 0.94±0.01.",
)
@click.option(
    "--run",
    "which",
    metavar="RUN",
    help="Determine the calibration factor from this run instead of a new load.",
)
@click.option("--force", is_flag=True, help="Calibrate even while other processes use the GPU.")
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
    """Measure the timing of a GPU's power sensor, and with a wall meter its calibration error.

    Bursts of load show how often the sensor updates, over what time it averages and how late it
    is. The results are stored as the GPU's sensor profile. Later runs compute their errors from it
    as long as board and driver are the same. No power limit or clock is changed. The exit status
    is 0 if at least one GPU could be calibrated.
    """
    if meter_path is None and (efficiency is not None or which is not None):
        option = "--run" if which is not None else "--psu-efficiency"
        raise UsageError(f"{option} needs a wall meter", "add --meter FILE.csv")
    meter = None if meter_path is None else _parse_meter(meter_path, efficiency)
    if which is not None and meter is not None:
        boards = _calibrate_from_run(store, which, meter, gpus)
    else:
        boards = _calibrate_by_load(gpus, seconds, meter, force=force)
    from joulewise.report.terminal.calibration import as_json, draw

    if json_path:
        write_json(as_json(boards), json_path)
    if json_path != STDOUT:
        draw(boards, console(), simulated="JOULEWISE_SIM" in os.environ)
    return 0 if any(board.tells for board in boards) else JoulewiseError.exit_status


def _calibrate_by_load(
    gpus: tuple[int, ...], seconds: float, meter: WallMeter | None, *, force: bool
) -> list[Calibration]:
    from joulewise.devices import discover

    discovery = discover()
    try:
        devices = _select_devices(discovery.devices, gpus)
        return [
            _calibrate(device, seconds, meter, force=force)
            if len(devices) == 1
            else _calibrate_or_report(device, seconds, meter, force=force)
            for device in devices
        ]
    finally:
        discovery.close()


def _calibrate_or_report(
    device: Device, seconds: float, meter: WallMeter | None, *, force: bool
) -> Calibration:
    """The calibration of one of several GPUs: an error becomes its result."""
    from joulewise.calibrate.board import Calibration
    from joulewise.data import Quantity, Unavailable

    try:
        return _calibrate(device, seconds, meter, force=force)
    except JoulewiseError as error:
        return Calibration(device.info, {Quantity.POWER: Unavailable(error.message, error.hint)})


def _calibrate(
    device: Device, seconds: float, meter: WallMeter | None, *, force: bool
) -> Calibration:
    from dataclasses import replace

    from joulewise.calibrate.bench import Rig
    from joulewise.calibrate.board import SENSORS, calibrate, keep
    from joulewise.calibrate.gain import gain_from_waves
    from joulewise.record.sensor_profiles import documented_profile

    tables = {quantity: documented_profile(device, quantity) for quantity in SENSORS}
    with Rig(device, force=force) as rig:
        timing = _progress(f"{device.info.key}: timing")
        calibration = calibrate(device.info, tables, rig, seconds, progress=timing)
        if meter is not None:
            gain = gain_from_waves(rig, meter, progress=_progress(f"{device.info.key}: gain"))
            calibration = replace(calibration, gain=gain.gain, gain_how=gain.how)
    return keep(calibration, os.environ, _utc_now())


def _calibrate_from_run(
    store: Path, which: str, meter: WallMeter, gpus: tuple[int, ...]
) -> list[Calibration]:
    from joulewise.calibrate.board import Calibration, keep
    from joulewise.calibrate.gain import gains_from_run
    from joulewise.store.runs import find

    gains = gains_from_run(find(store, which), meter)
    wanted = {f"gpu{number}" for number in gpus}
    if lacking := wanted - {info.key for info in gains}:
        raise UsageError(f"the run has no trace of {min(lacking)}", "joulewise show lists its GPUs")
    return [
        keep(Calibration(info, gain=gain.gain, gain_how=gain.how), os.environ, _utc_now())
        for info, gain in gains.items()
        if not wanted or info.key in wanted
    ]


def _select_devices(devices: tuple[Device, ...], gpus: tuple[int, ...]) -> list[Device]:
    from joulewise.data import Kind

    gpus_by_key = {device.info.key: device for device in devices if device.info.kind is Kind.GPU}
    if not gpus_by_key:
        raise UsageError(
            "there is no GPU to calibrate",
            "run `joulewise doctor`; to try it: joulewise sim --gpu v100 -- joulewise calibrate",
        )
    wanted = [f"gpu{number}" for number in dict.fromkeys(gpus)] or list(gpus_by_key)
    for key in wanted:
        if key not in gpus_by_key:
            raise UsageError(f"there is no {key}", f"visible GPUs are {', '.join(gpus_by_key)}")
    return [gpus_by_key[key] for key in wanted]


def _parse_meter(path: Path, efficiency: str | None) -> WallMeter:
    from joulewise.calibrate.gain import DEFAULT_EFFICIENCY, WallMeter
    from joulewise.record.sensor_profiles import CalibratedValue

    if efficiency is None:
        return WallMeter(path, DEFAULT_EFFICIENCY)
    match = re.fullmatch(r"\s*([\d.]+)\s*(?:(?:±|\+-|\+/-)\s*([\d.]+))?\s*", efficiency)
    try:
        share, error = (float(part or "0.01") for part in match.groups()) if match else (0.0, 0.0)
    except ValueError:
        share = error = 0.0
    if not (0.3 <= share <= 1 and error < share / 2):
        raise UsageError(
            f"--psu-efficiency must be between 0.3 and 1, not {efficiency!r}",
            "give a fraction with its error, such as 0.94±0.01",
        )
    return WallMeter(path, CalibratedValue(share, error))


def _progress(what: str) -> Callable[[float], None]:
    """A function that shows a share as one line of progress, on a terminal only."""
    if not sys.stderr.isatty():
        return lambda _: None

    def show(share: float) -> None:
        done = min(1.0, share)
        sys.stderr.write(f"\r{what} {done:4.0%}" if done < 1 else "\r\x1b[K")
        sys.stderr.flush()

    return show


def _utc_now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")

"""``joulewise export``: writes a run's data for other programs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from joulewise.cli.output import STDOUT, joulewise_command, pass_store, say
from joulewise.data import Quantity, WarningCode
from joulewise.errors import UsageError
from joulewise.store.layout import BUFFERED_QUANTITIES, StreamKind, buffer_stream_kind

FORMATS = ("csv", "json", "parquet")
# Warnings of a result that say that spans, or their energies, may be missing.
_LOST_SPANS = {WarningCode.DAMAGED, WarningCode.SPANS_LOST, WarningCode.RECORDER_ENDED}
# Tables that have no rows of single devices, and the error where some are named.
_WITHOUT_DEVICES = {
    "spans": (
        "--what spans exports the sum over all counted devices",
        "for single devices: --what span-devices",
    ),
    "logged": ("--what logged exports figures of no device", "leave --device out"),
}
EPILOG = """\b
Examples:
  joulewise export last -o trace.csv
  joulewise export last --what spans -o spans.parquet
  joulewise export last --what sensors --device gpu0 --format json -o -
"""


@click.command(epilog=EPILOG)
@click.option(
    "--what",
    type=click.Choice(["trace", "samples", "sensors", "spans", "span-devices", "logged"]),
    default="trace",
    show_default=True,
    help="Export power and energy as polled (trace), the driver's own samples, all other sensors, "
    "spans with the energy of all counted devices, spans on each device, or the figures that the "
    "program logged.",
)
@click.option(
    "--quantity",
    type=click.Choice([quantity.value for quantity in (Quantity.POWER, *BUFFERED_QUANTITIES)]),
    help="Quantity of the driver's samples, with --what samples. [default: power_w]",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="Format of the output. [default: by the extension of PATH, else csv]",
)
@click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="KEY",
    help="Export only this device, such as gpu0; may be repeated.",
)
@click.option(
    "-o", "--output", "path", required=True, metavar="PATH", help="Write to PATH; - is stdout."
)
@click.argument("which", metavar="RUN")
@pass_store
def command(
    store: Path,
    which: str,
    *,
    what: str,
    quantity: str | None,
    form: str | None,
    devices: tuple[str, ...],
    path: str,
) -> None:
    """Export a run's trace, spans or logged figures as a table.

    Times are `t_s` (seconds since the command started) and `t_ns` (CLOCK_MONOTONIC). What could
    not be read is empty in CSV and null in other formats.
    """
    form = form or _format_of_path(path)
    if quantity and what != "samples":
        raise UsageError("--quantity needs --what samples", "add --what samples")
    if devices and what in _WITHOUT_DEVICES:
        raise UsageError(*_WITHOUT_DEVICES[what])
    if path == STDOUT and form == "parquet" and sys.stdout.isatty():
        raise UsageError("Parquet cannot be written to a terminal", "give -o a file")
    from joulewise.analyse.stored_result import load_or_compute_result
    from joulewise.report.resolve import resolve_one_run
    from joulewise.store.manifest import read_manifest

    run = resolve_one_run(store, which, joulewise_command(store)).newest
    manifest = read_manifest(run)
    result = load_or_compute_result(run)
    origin_ns = result.run.span.start_ns
    from joulewise.analyse.damage import HINT, SoundStreams
    from joulewise.analyse.export_tables import (
        logged_table,
        span_device_table,
        span_table,
        stream_table,
    )
    from joulewise.analyse.run_spans import read_sound_spans
    from joulewise.report.export import write

    sampled = buffer_stream_kind(Quantity(quantity or Quantity.POWER))
    lane = {"trace": StreamKind.FAST, "samples": sampled, "sensors": StreamKind.SLOW}.get(what)
    sound = SoundStreams(run, manifest)
    known = [device.info.key for device in manifest.devices]
    for key in devices:
        if key not in known:
            raise UsageError(f"{run.name} has no device {key!r}", f"it has {', '.join(known)}")
    wanted = [one for one in manifest.devices if not devices or one.info.key in devices]
    damage, implausible = sound.find_damage(), sound.find_implausible()
    if what == "logged":
        from joulewise.store.logged_values import read_logged

        shape, pieces = logged_table(read_logged(run), origin_ns)
        lost = [one for one in result.warnings if one.code in _LOST_SPANS]
    elif lane is None:
        spans = read_sound_spans(run, manifest)
        shape, pieces = (
            span_table(run, manifest, result, spans=spans)
            if what == "spans"
            else span_device_table(run, manifest, result, devices, spans=spans)
        )
        lost = [one for one in (*result.warnings, *spans.warnings) if one.code in _LOST_SPANS]
    else:
        shape, pieces = stream_table(sound, wanted, lane, origin_ns)
        damage = tuple(one for one in damage if one.stream is lane)
        odd = [one.warning for one in implausible if one.stream is lane]
        lost = [*odd, *(one for one in result.warnings if one.code is WarningCode.RECORDER_ENDED)]
    rows = write(shape, pieces, form, path)
    notes = {one.message: HINT for one in damage} | {one.message: one.hint for one in lost}
    for message, hint in notes.items():
        say(message, hint)
    if path != STDOUT:
        click.echo(f"{rows} row{'' if rows == 1 else 's'} in {path}", err=True)


def _format_of_path(path: str) -> str:
    ending = Path(path).suffix.lower().lstrip(".")
    if ending in FORMATS or path == STDOUT or not ending:
        return ending if ending in FORMATS else "csv"
    raise UsageError(
        f"the extension of {path} names no format", f"add --format {' or '.join(FORMATS)}"
    )

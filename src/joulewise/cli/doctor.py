"""``joulewise doctor``: what can be measured and turned here."""

from __future__ import annotations

import click

from joulewise.cli.options import positive
from joulewise.cli.output import STDOUT, console, json_option, write_json


@click.command()
@click.option(
    "--cpu-tdp",
    "cpu_tdp_w",
    type=positive("W"),
    metavar="WATTS",
    help="The CPU's TDP, where its power must be modelled.",
)
@json_option
def command(cpu_tdp_w: float | None, json_path: str | None) -> None:
    """Show every device, sensor and knob: its value now, or why not and the exact fix.

    The exit status is 0 whatever was found: what is missing is part of the report.
    """
    from joulewise.devices import Options, discover
    from joulewise.report.views.checkup import as_json, examine

    discovery = discover(Options(cpu_tdp_w=cpu_tdp_w))
    try:
        checkup = examine(discovery)
    finally:
        discovery.close()
    if json_path:
        write_json(as_json(checkup), json_path)
    if json_path != STDOUT:
        from joulewise.report.terminal.doctor import draw

        draw(checkup, console())

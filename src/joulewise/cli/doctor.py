"""``joulewise doctor``: lists what can be measured and changed here."""

from __future__ import annotations

import click

from joulewise.cli.options import cpu_tdp_option
from joulewise.cli.output import STDOUT, console, json_option, write_json


@click.command()
@cpu_tdp_option
@json_option
def command(cpu_tdp_w: float | None, json_path: str | None) -> None:
    """List every device, sensor and setting: its value, or why it is missing and how to fix that.

    The exit status is 0 even if something is missing.
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

"""``joulewise guard``: the service that turns knobs for those who lack the right."""

from __future__ import annotations

import os
from pathlib import Path

import click


@click.command()
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Who may turn which knobs of which devices how far (TOML).",
)
@click.option(
    "--socket",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Where to listen. [default: $JOULEWISE_GUARD, or /run/joulewise/guard.sock]",
)
@click.option("--group", metavar="NAME", help="Whose members may connect; root always may.")
@click.option("--unit", is_flag=True, help="Print a unit for systemd, and end.")
def command(config: Path | None, socket: Path | None, group: str | None, *, unit: bool) -> None:
    """Turn knobs for the members of a group, and turn them back when these are gone.

    Without FILE, a device's whole range is allowed; with it, nothing that it does not list. SIGHUP
    reads it again; SIGTERM ends the service, when everything is put back.
    """
    from joulewise.control.client import socket_path
    from joulewise.control.service.server import changeable_by_others, serve, systemd_unit

    if unit:
        click.echo(systemd_unit(), nl=False)
        if changeable := changeable_by_others():
            from joulewise.cli.output import say

            say(
                "warning: root would run this joulewise, and users other than root can change "
                f"{changeable}: whoever can change the program that root runs is root",
                "install joulewise as root into a folder that only root may write, such as "
                "/opt/joulewise, and have that one print the unit",
            )
        return
    serve(socket or Path(socket_path(os.environ)), config, group)

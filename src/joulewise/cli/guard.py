"""``joulewise guard``: the service that changes settings for users without root."""

from __future__ import annotations

import os
from pathlib import Path

import click


@click.command()
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="TOML file with the group, devices and ranges that are allowed.",
)
@click.option(
    "--socket",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Listen at this Unix socket. [default: $JOULEWISE_GUARD, or /run/joulewise/guard.sock]",
)
@click.option("--group", metavar="NAME", help="Let the members of this group connect.")
@click.option("--unit", is_flag=True, help="Print a systemd unit for the service and exit.")
def command(config: Path | None, socket: Path | None, group: str | None, *, unit: bool) -> None:
    """Change settings for the members of a group, and put them back when their process has ended.

    Without --config, the whole range of each device is allowed; with it, only what the file lists.
    SIGHUP reads the file again; SIGTERM puts everything back and ends the service.
    """
    from joulewise.control.client import socket_path
    from joulewise.control.service.server import changeable_by_others, serve, systemd_unit

    if unit:
        click.echo(systemd_unit(), nl=False)
        if changeable := changeable_by_others():
            from joulewise.cli.output import say

            say(
                f"warning: users other than root can change {changeable}, which root would run: "
                "whoever can change it can act as root",
                "install joulewise as root into a folder that only root can write to, such as "
                "/opt/joulewise, and print the unit with that installation",
            )
        return
    serve(socket or Path(socket_path(os.environ)), config, group)

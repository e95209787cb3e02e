"""``--by``, ``--boundary`` and what belongs to it, for the verbs that judge settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from joulewise.cli.numbers import Number

_Command = TypeVar("_Command", bound=Callable[..., Any])

reference_option = click.option(
    "--reference",
    "references",
    multiple=True,
    metavar="NAME=V",
    help="Of a table: what to compare with.",
)
"""For the verbs that also take measurements from elsewhere."""


def metric_options(*, boundary: str | None) -> Callable[[_Command], _Command]:
    """With what is counted if nobody says so; None where the sweep itself knows."""
    usual = "" if boundary else " [default: as the sweep was asked, else gpu]"
    options = (
        click.option(
            "--by",
            multiple=True,
            metavar="METRIC",
            help="energy, time, edp, ed2p, eds:2.0, cost:0.5, slowdown:1.1; may be repeated.",
        ),
        click.option(
            "--boundary",
            type=click.Choice(["gpu", "node", "wall"]),
            default=boundary,
            show_default=True,
            help=f"What is counted.{usual}",
        ),
        click.option(
            "--overhead-w",
            type=Number(min=0),
            metavar="W",
            help="What the rest of the node draws.",
        ),
        click.option(
            "--pue", type=Number(min=1), metavar="X", help="What the site draws for each joule."
        ),
    )

    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate

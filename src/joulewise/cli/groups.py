"""Groups of verbs: ``joulewise`` itself, and verbs that have verbs of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import click

from joulewise.errors import UsageError, did_you_mean


class VerbGroup(click.Group):
    """Loads a verb's file only when that verb is used.

    ``verbs`` says of each what it does; its file, in ``package``, has the click command
    ``command``.
    """

    def __init__(self, *args: Any, verbs: Mapping[str, str], package: str, **more: Any) -> None:
        super().__init__(*args, **more)
        self.verbs = verbs
        self._package = package

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self.verbs:
            return None
        command = import_module(f"{self._package}.{cmd_name}").command
        assert isinstance(command, click.Command)  # noqa: S101
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.verbs and not args[0].startswith("-"):
            suggestion = did_you_mean(args[0], self.verbs).rstrip()
            ctx.fail(f"there is no verb {args[0]!r}{suggestion and f'; {suggestion}'}")
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None:
            _check_option_values(f"{ctx.command_path} {args[0]}", command, rest)
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Verbs"):
            formatter.write_dl(list(self.verbs.items()))


def _check_option_values(verb: str, command: click.Command, arguments: Sequence[str]) -> None:
    """Raise where ``--`` or another option follows an option that needs a value.

    click would take it for the value: ``run --name -- true`` would make a run named ``--``.
    """
    options = {
        word: option
        for option in command.params
        if isinstance(option, click.Option)
        for word in (*option.opts, *option.secondary_opts)
    }
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--" or (not word.startswith("-") and not command.allow_interspersed_args):
            return
        option = options.get(word)
        if option is None or option.is_flag or option.count:
            continue
        value = rest.pop(0) if rest else ""  # click refuses one that is not there
        if value == "--" or value in options:
            raise UsageError(
                f"{word} needs a value, but is followed by {value}",
                f"write {word}={option.make_metavar(click.Context(command))}; see: {verb} --help",
            )

"""What users read rests on nothing that an installed joulewise does not have."""

import ast
from importlib import import_module
from pathlib import Path

import click
import pytest

import joulewise
from joulewise.cli import VERBS
from joulewise.errors import UsageError, did_you_mean
from joulewise.metrics.metric import parse
from joulewise.simulate.boards import BOARDS, load_board
from joulewise.simulate.realtime.launch import parse_fleet
from joulewise.simulate.workloads import load_workload

SOURCES = sorted(Path(joulewise.__file__).parent.rglob("*.py"))


def strings(tree):
    """All strings of a module that are no docstring."""
    statements = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and not any(node is statement for statement in statements):
            yield node.value


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_no_message_cites_a_page_that_the_wheel_does_not_have(path):
    text = path.read_text("utf-8")
    if "docs/" in text:
        assert not [it for it in strings(ast.parse(text)) if "docs/" in it]


@pytest.mark.parametrize("verb", VERBS)
def test_no_help_shows_a_bound_that_there_is_not(verb):
    command = import_module(f"joulewise.cli.{verb}").command
    shown = command.get_help(click.Context(command, info_name=verb))
    assert "None" not in shown


@pytest.mark.parametrize(
    ("look_up", "name", "near"),
    [
        (load_board, "v10O", "v100"),
        (load_board, "V100", "v100"),
        (lambda name: parse_fleet(name, BOARDS), "rtx600", "rtx6000"),
        (lambda name: parse_fleet(name, BOARDS), "a100,v10O", "v100"),
        (lambda name: load_workload(name, load_board("v100")), "resnet5O", "resnet50"),
        (parse, "edpp", "edp"),
    ],
)
def test_a_typing_error_is_answered_with_what_may_be_meant(look_up, name, near):
    with pytest.raises(UsageError) as refused:
        look_up(name)
    assert f"did you mean {near}?" in refused.value.hint


def test_what_is_close_to_nothing_has_no_suggestion():
    assert not did_you_mean("xyzzy", ["v100", "a100"])

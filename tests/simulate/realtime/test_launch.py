from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.errors import UsageError
from joulewise.simulate.boards import BOARDS
from joulewise.simulate.nvml.shared_memory import CONSTANTS
from joulewise.simulate.realtime import launch


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("v100", ["v100"]),
        ("v100x8", ["v100"] * 8),
        ("rtx6000", ["rtx6000"]),
        ("rtx6000x2", ["rtx6000"] * 2),
        ("v100x2, a100", ["v100", "v100", "a100"]),
    ],
)
def test_the_number_of_gpus_is_parsed(text, keys):
    assert list(launch.parse_fleet(text, BOARDS)) == keys


@given(st.text(alphabet="v10x,a -6rt\u0663²"))
def test_anything_else_is_a_usage_error(text):
    with suppress(UsageError):
        keys = launch.parse_fleet(text, BOARDS)
        assert 0 < len(keys) <= launch.MAX_GPUS
        assert set(keys) <= set(BOARDS)


def test_as_many_as_the_shared_memory_holds():
    assert CONSTANTS["MAX_GPUS"] == launch.MAX_GPUS


@pytest.mark.parametrize(
    ("text", "near"),
    [("v101", "v100"), ("rtx600", "rtx6000"), ("a10", "a100"), ("v100,rtx600x2", "rtx6000")],
)
def test_a_misspelled_board_gets_a_suggestion(text, near):
    with pytest.raises(UsageError) as caught:
        launch.parse_fleet(text, BOARDS)
    assert caught.value.hint.startswith(f"did you mean {near}? ")

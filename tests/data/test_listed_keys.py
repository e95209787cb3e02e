"""Devices by their keys, as a person would list them."""

import pytest

from joulewise.data import listed_keys


@pytest.mark.parametrize(
    ("keys", "listed"),
    [
        ("gpu0 gpu1 gpu2 gpu5", "gpu0-gpu2, gpu5"),
        ("gpu0 gpu1 cpu2", "gpu0, gpu1, cpu2"),
        ("gpu8 gpu9 gpu10", "gpu8-gpu10"),
        ("n1/gpu0 n1/gpu1 n1/gpu2 n2/gpu3", "n1/gpu0-n1/gpu2, n2/gpu3"),
        ("wall gpu0", "wall, gpu0"),
        ("", ""),
    ],
)
def test_those_in_a_row_are_folded(keys, listed):
    assert listed_keys(keys.split()) == listed

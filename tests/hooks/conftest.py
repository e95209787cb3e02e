import functools

import pytest

from tests.helpers.hooked_programs import run_program


@pytest.fixture
def execute(tmp_path):
    return functools.partial(run_program, tmp_path)

"""A store to look at, and a browser's view of it."""

import pytest

from joulewise.analyse.run_result import analyse
from joulewise.analyse.stored_result import write_result
from tests.helpers.run_directories import PID, MadeRun, device
from tests.helpers.view_servers import served


@pytest.fixture
def store(tmp_path):
    folder = tmp_path / "my runs é"
    folder.mkdir()
    return folder


@pytest.fixture
def make_run(store):
    """A run of 10 s on one GPU, at 200 W unless told otherwise."""

    def make(run_id, *, watts=200.0, place=None, **changed):
        made = MadeRun((place or store) / run_id)
        made.fast(device("gpu0"), lambda _: watts)
        made.slow("gpu0", gpu_utilisation_pct=lambda _: 99, temperature_c=lambda t: 50 + t)
        made.processes("gpu0", (0, [(PID, "python", True)]))
        path = made.write(**changed)
        write_result(path, analyse(path))
        return path

    return make


@pytest.fixture
def view(store):
    with served(store) as server:
        yield server

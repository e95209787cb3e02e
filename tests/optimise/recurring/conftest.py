import pytest

from tests.helpers.postgresql import missing, postgres_server
from tests.optimise.recurring.job_runs import JobRuns


@pytest.fixture(scope="session")
def postgresql():
    """One server for all tests of a process; each has a database of its own."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    with postgres_server() as server:
        yield server


@pytest.fixture
def job(tmp_path):
    return JobRuns(tmp_path)

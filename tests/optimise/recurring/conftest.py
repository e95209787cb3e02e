import pytest

from tests.optimise.recurring.job_runs import JobRuns


@pytest.fixture
def job(tmp_path):
    return JobRuns(tmp_path)

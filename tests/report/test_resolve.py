"""A group of which a run may be missing: the sum is a lower bound only where that may be so."""

import pytest

from joulewise.data import WarningCode
from joulewise.report.resolve import load_group, resolve_runs
from joulewise.store.layout import MANIFEST
from tests.helpers.run_directories import MadeRun, device


@pytest.fixture
def store(tmp_path):
    return tmp_path / "store"


def make(store, name, group, *, is_readable=True):
    made = MadeRun(store / name).fast(device("gpu0"), lambda _: 100.0)
    run = made.processes("gpu0", (0.0, [(4242, "python", True)])).write(group=group)
    if not is_readable:
        text = (run / MANIFEST).read_text()
        assert '"group": ' in text
        (run / MANIFEST).write_text(text.replace('"state": "complete"', '"state": "completf"'))


@pytest.mark.parametrize(
    ("group", "other", "is_bound"),
    [
        ("job1", "job1", True),
        ("job1", "job1.0", True),
        ("job1", "job10", False),
        ("job1", "job2", False),
        ("été", "été", True),
        ("été", "été.1", True),
        ("été", "étés", False),
        ('a"b', 'a"b', True),
    ],
)
def test_a_run_that_cannot_be_read_counts_where_it_may_be_of_the_group(
    store, group, other, is_bound
):
    make(store, "whole", group)
    make(store, "damaged", other, is_readable=False)
    result = load_group(store, resolve_runs(store, group)).result
    assert result.run.total.at_least == is_bound
    assert any(one.code is WarningCode.DAMAGED for one in result.warnings) == is_bound

"""Each test of a store runs on SQLite and on a real PostgreSQL."""

import pytest


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request, tmp_path):
    """Where a new store can be."""
    if request.param == "sqlite":
        return str(tmp_path / "store" / "jobs.sqlite")
    server = request.getfixturevalue("postgresql")
    return server.url(server.new_database())


class WallClock:
    """A wall clock that stands still until it is moved."""

    def __init__(self):
        self.now_ns = 1_800_000_000_000_000_000

    def __call__(self):
        return self.now_ns

    def advance(self, seconds):
        self.now_ns += round(seconds * 1e9)


@pytest.fixture
def clock():
    return WallClock()

"""What every test starts from."""

import signal

import pytest
from hypothesis import settings

# A deadline of Hypothesis (200 ms) fails on a loaded machine; no test of ours is one of speed.
settings.register_profile("no deadline", settings.get_profile("default"), deadline=None)
settings.load_profile("no deadline")


def pytest_configure():
    # Whoever was started in the background by a shell ignores Ctrl-C, and so would all we start.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # As with nohup, whose wish is kept for the tests: a handler is not handed on, to ignore is.
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)


@pytest.fixture(scope="module")
def chromium():
    """No longer than a module needs it: while Playwright is on, no other loop can be run."""
    from browser import chromium_browser

    with chromium_browser() as browser:
        yield browser

"""What every test starts from."""

import signal

import pytest
from hypothesis import settings

# How long an example takes is the machine's affair; speed is shown in benchmarks/.
settings.register_profile("joulewise", deadline=None)
settings.load_profile("joulewise")


def pytest_configure():
    # Whoever was started in the background by a shell ignores Ctrl-C, and so would all we start.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # As with nohup, whose wish is kept for the tests: a handler is not handed on, to ignore is.
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)


@pytest.fixture(autouse=True)
def _no_signal_stays_blocked():
    """What a test starts inherits the signals that are blocked, and would not hear of Ctrl-C."""
    yield
    blocked = signal.pthread_sigmask(signal.SIG_SETMASK, ())
    assert not blocked, "the test left signals blocked"


@pytest.fixture(scope="module")
def chromium():
    """No longer than a module needs it: while Playwright is on, no other loop can be run."""
    from tests.helpers.browser import chromium_browser

    with chromium_browser() as browser:
        yield browser

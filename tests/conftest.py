"""What every test starts from."""

import signal


def pytest_configure():
    # Whoever was started in the background by a shell ignores Ctrl-C, and so would all we start.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)

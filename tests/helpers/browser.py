"""A real browser, for tests that look at pages."""

import os
import shutil
from contextlib import contextmanager

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def chromium_browser():
    """Skips where there is none, unless it is said that there must be one."""
    from playwright.sync_api import sync_playwright

    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        reason = "there is no Chromium here: script/system-packages installs it as root"
        if os.environ.get("JOULEWISE_NEEDS_BROWSER"):
            pytest.fail(reason)
        pytest.skip(reason)
    arguments = ["--disable-gpu", *(["--no-sandbox"] if os.getuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=arguments)
        try:
            yield browser
        finally:
            browser.close()

"""A real browser with the network off, and pages to open in it."""

import subprocess
import sys
from dataclasses import dataclass, field

import pytest

NOTE_VIOLATIONS = """
window.violations = [];
addEventListener("securitypolicyviolation", (e) => violations.push(e.violatedDirective));
"""


@dataclass
class Opened:
    """A page in the browser, and everything that went wrong in it."""

    tab: object
    problems: list = field(default_factory=list)
    requests: list = field(default_factory=list)

    @property
    def violations(self):
        return self.tab.evaluate("window.violations")

    def see_all(self):
        """Wait, without scrolling, until every figure is drawn or has failed."""
        self.tab.wait_for_function("""() => [...document.querySelectorAll("figure[data-chart]")]
            .every(f => "drawn" in f.dataset || "failed" in f.dataset)""")
        return self.tab.locator("figure[data-chart]").count()


@pytest.fixture
def open_page(chromium):
    """Open a file from disk, with the network off; ``how`` is for the browser's context."""
    contexts = []

    def opened(path, **how):
        how = {"viewport": {"width": 1100, "height": 900}, **how}
        context = chromium.new_context(offline=True, **how)
        contexts.append(context)
        context.add_init_script(NOTE_VIOLATIONS)
        page = Opened(context.new_page())
        page.tab.on("console", lambda message: _note(page, message))
        page.tab.on("pageerror", lambda error: page.problems.append(str(error)))
        page.tab.on("dialog", lambda dialog: page.problems.append(dialog.message))
        page.tab.on("request", lambda request: page.requests.append(request.url))
        page.tab.goto(path.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()


def _note(page, message):
    if message.type in {"error", "warning"}:
        page.problems.append(message.text)


@pytest.fixture(scope="session")
def demo_store(tmp_path_factory):
    store = tmp_path_factory.mktemp("demo") / "store"
    _joulewise(store, "demo")
    return store


@pytest.fixture(scope="session")
def demo_report(demo_store):
    return demo_store / "demo.html"


@pytest.fixture(scope="session")
def run_report(demo_store):
    run = next(path.parent.name for path in sorted(demo_store.glob("*/run.json")))
    _joulewise(demo_store, "report", run, "-o", str(demo_store / "run.html"))
    return demo_store / "run.html"


def _joulewise(store, *words):
    subprocess.run(
        [sys.executable, "-m", "joulewise", "--store", str(store), *words],
        check=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )

"""The pages in a real browser: no error, no request elsewhere, and what a reader does there."""

import re
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from joulewise.process.linux import boot_id
from joulewise.store.manifest import RecorderRecord, read_manifest, write_manifest
from tests.helpers.processes import DEADLINE_S, eventually
from tests.helpers.recordings_in_progress import recorded

OLD, NEW = "20261101-120000-aaaa", "20261116-003512-bbbb"


@pytest.fixture
def opened(chromium, view):
    """The first page, as an address that was pasted; any problem fails the test at its end."""
    problems, elsewhere = [], []

    def open_it(**how):
        context = chromium.new_context(**how)
        contexts.append(context)
        tab = context.new_page()
        tab.set_default_timeout(1000 * DEADLINE_S)
        tab.on(
            "console",
            lambda message: problems.append(message.text) if message.type == "error" else None,
        )
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.on("request", note)
        tab.goto(view.server.url)
        return tab

    def note(request):
        parts = urlsplit(request.url)
        if parts.scheme not in {"data", "blob"} and parts.port != view.port:
            elsewhere.append(request.url)

    contexts = []
    yield open_it
    for context in contexts:
        context.close()
    assert problems == []
    assert elsewhere == []


def test_from_the_list_to_a_report_and_back(opened, make_run):
    make_run(OLD, name="first <b>one</b>")
    make_run(NEW, name="second", watts=300.0)
    tab = opened()
    follow(tab, tab.get_by_role("link", name="first <b>one</b>"))
    assert tab.locator("#verdict").inner_text().startswith("2.00\xa0kJ")
    figure = tab.locator("figure[data-chart]").first
    figure.scroll_into_view_if_needed()
    figure.locator("svg").first.wait_for()
    follow(tab, tab.get_by_role("link", name="joulewise: all runs"))
    assert tab.locator("#verdict").inner_text() == "2 runs; 0 sweeps."


def test_the_list_is_filtered_and_sorted_in_the_browser(opened, make_run):
    make_run(OLD, name="one")
    make_run(NEW, name="two", watts=300.0)
    tab = opened()
    follow(tab, tab.get_by_role("link", name="Energy"))
    assert tab.locator("tbody th a").all_inner_texts() == ["two", "one"]
    tab.get_by_label("Filter").fill("name=one")
    with tab.expect_navigation():
        tab.keyboard.press("Enter")
    tab.locator("tbody th a").filter(has_text="two").wait_for(state="detached")
    assert tab.locator("tbody th a").all_inner_texts() == ["one"]


def test_two_selected_runs_are_compared(opened, make_run):
    make_run(OLD, name="one")
    make_run(NEW, name="two", watts=300.0)
    tab = opened()
    tab.get_by_label("one as A").check()
    tab.get_by_label("two as B").check()
    follow(tab, tab.get_by_role("button", name="Compare B with A"))
    tab.get_by_role("link", name="joulewise: all runs").wait_for()
    assert "more energy" in tab.locator("#verdict").inner_text()


def test_without_javascript_there_are_list_reports_and_numbers(opened, make_run):
    make_run(OLD, name="one")
    tab = opened(java_script_enabled=False)
    assert not tab.locator("#theme").is_visible()
    follow(tab, tab.get_by_role("link", name="one", exact=True))
    assert tab.locator("#verdict").inner_text().startswith("2.00\xa0kJ")
    follow(tab, tab.get_by_role("link", name="joulewise: all runs"))
    assert tab.locator("#verdict").inner_text() == "1 run; 0 sweeps."


def test_a_run_in_progress_is_followed_until_it_ends(opened, store):
    with recorded(store, "--name", "mine", "--rate", "20") as (process, _):
        tab = opened(color_scheme="dark", viewport={"width": 390, "height": 800})
        follow(tab, tab.get_by_role("link", name="mine"))
        eventually(lambda: polled(tab) >= 3)
        assert re.fullmatch(r"[\d.]+ W", tab.locator("#power-0").inner_text())
        assert tab.locator(".curve .limit").first.get_attribute("d").startswith("M0,")
        line = tab.locator(".curve .mean").first
        before = line.get_attribute("d")
        eventually(lambda: line.get_attribute("d") != before)
        assert not tab.locator("#ended").is_visible()
        width = tab.evaluate("document.documentElement.scrollWidth")
        assert width <= 390
        process.stdin.close()
        tab.locator("#ended").wait_for()
        follow(tab, tab.get_by_role("link", name="Open its report"))
        tab.get_by_role("heading", name="Energy", exact=True).wait_for()


def test_a_run_without_devices_yet_reloads_the_page(opened, make_run):
    recorder = RecorderRecord.of_this_process()
    recording = {
        "state": "recording",
        "recorder": recorder,
        "boot_id": boot_id(),
        "exit_code": None,
    }
    run = make_run(NEW, **recording, name="mine")
    whole = read_manifest(run)
    write_manifest(run, replace(whole, devices=()))
    tab = opened()
    follow(tab, tab.get_by_role("link", name="mine"))
    tab.get_by_text("No device has been read yet").wait_for()
    write_manifest(run, whole)
    tab.locator("#power-0").wait_for()


def test_the_theme_is_stored_across_pages(opened, make_run):
    make_run(OLD, name="one")
    tab = opened(color_scheme="light")
    tab.get_by_role("button", name="Dark theme", pressed=False).click()
    tab.get_by_role("button", name="Dark theme", pressed=True).wait_for()
    follow(tab, tab.get_by_role("link", name="one", exact=True))
    tab.get_by_role("button", name="Dark theme", pressed=True).wait_for()
    assert tab.evaluate("document.documentElement.dataset.theme") == "dark"


def test_a_page_without_a_server_says_so(opened, store):
    with recorded(store, "--name", "mine"):
        tab = opened()
        follow(tab, tab.get_by_role("link", name="mine"))
        eventually(lambda: polled(tab) >= 1)
        tab.route("**/now/*", lambda route: route.fulfill(status=200, body="?"))
        tab.locator("#lost").wait_for()
        tab.unroute("**/now/*")
        tab.locator("#lost").wait_for(state="hidden")


def follow(tab, link):
    """Until the page that it leads to is there: the one before may have what is looked for, too."""
    with tab.expect_navigation():
        link.click()


def polled(tab):
    """How often the page has heard of the run."""
    return int(tab.locator("#devices").get_attribute("data-polled") or 0)

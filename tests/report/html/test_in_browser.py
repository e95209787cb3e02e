"""A report as people meet it: in a browser, from disk, with the network off."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe

from joulewise.report.charts.chart import Chart
from joulewise.report.html.render import Notice, Section, render
from joulewise.report.tables import as_csv
from tests.helpers.sample_pages import CHART, PAGE, TABLE, embedded_data, with_charts

OUTSIDE = re.compile(r"https?:|^//", re.IGNORECASE)


@pytest.fixture
def page_file(tmp_path):
    def write(page, change=lambda html: html):
        path = tmp_path / "page.html"
        path.write_text(change(render(page)), encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1100, 360])
def test_the_demo_report_is_drawn_without_console_messages(theme, width, demo_report, open_page):
    size = {"width": width, "height": 800}
    page = open_page(demo_report, color_scheme=theme, viewport=size)
    charts = embedded_data(demo_report.read_text("utf-8"))["charts"]
    assert page.see_all() == len(charts) > 5
    tab = page.tab
    assert tab.locator(f"figure[data-drawn={theme}] .chart svg").count() == len(charts)
    assert not tab.locator("[data-failed], .problem").count()
    empty = "svgs => svgs.filter(s => !s.querySelector('.mark-line path, .mark-symbol path, "
    empty += ".mark-rect path, .mark-rule line, .mark-area path')).length"
    assert tab.locator("figure svg").evaluate_all(empty) == 0
    wide = "document.documentElement.scrollWidth"
    assert tab.evaluate(wide) == width
    widest = "svgs => Math.max(...svgs.map(s => s.getBoundingClientRect().right))"
    assert tab.locator("figure svg").evaluate_all(widest) <= width
    assert not page.problems
    assert not page.violations
    assert page.requests == [demo_report.as_uri()]


@pytest.mark.parametrize("width", [1100, 360])
def test_a_runs_report_is_drawn(width, run_report, open_page):
    page = open_page(run_report, viewport={"width": width, "height": 800})
    drawn = page.see_all()
    assert page.tab.locator("figure[data-drawn] svg").count() == drawn > 2
    assert page.tab.evaluate("document.documentElement.scrollWidth") == width
    widest = "svgs => Math.max(...svgs.map(s => s.getBoundingClientRect().right))"
    assert page.tab.locator("figure svg").evaluate_all(widest) <= width
    assert not page.problems
    assert not page.violations


def test_the_theme_is_switched_and_stored(demo_report, open_page):
    page = open_page(demo_report, color_scheme="light")
    page.see_all()
    tab = page.tab
    ground = "getComputedStyle(document.body).backgroundColor"
    light = tab.evaluate(ground)
    tab.get_by_role("button", name="Dark theme").click()
    count = tab.locator("figure[data-chart]").count()
    all_dark = f"() => document.querySelectorAll('figure[data-drawn=dark]').length == {count}"
    tab.wait_for_function(all_dark)
    assert tab.evaluate(ground) != light
    assert tab.locator("#theme").get_attribute("aria-pressed") == "true"
    tab.reload()
    assert tab.locator("#theme").get_attribute("aria-pressed") == "true"
    assert not tab.context.cookies()
    assert not page.problems


def test_a_printer_gets_every_figure(demo_report, open_page):
    """Nobody waits for a promise before printing: they must all be kept within the event."""
    tab = open_page(demo_report, color_scheme="dark").tab
    printed = "dispatchEvent(new Event('beforeprint')); new Promise(done => setTimeout(done))"
    tab.evaluate(printed)
    drawn = tab.locator("figure[data-drawn=print]").count()
    assert drawn == tab.locator("figure[data-chart]").count()
    assert tab.pdf()[:4] == b"%PDF"


def test_all_controls_are_reached_by_keyboard(demo_report, open_page):
    tab = open_page(demo_report).tab
    tab.locator("details").evaluate_all("all => all.forEach(d => d.open = true)")
    usable = "a:visible, button:visible, summary:visible, [tabindex='0']:visible"
    wanted = tab.locator(usable).evaluate_all("all => all.map(e => e.outerHTML.slice(0, 200))")
    reached = []
    for _ in wanted:
        tab.keyboard.press("Tab")
        script = "e => [e.outerHTML.slice(0, 200), getComputedStyle(e).outlineStyle]"
        reached.append(tab.locator(":focus").evaluate(script))
    assert "Skip to the result" in reached[0][0]
    assert 'id="theme"' in reached[1][0]
    assert [element for element, _ in reached] == wanted
    assert all(outline != "none" for _, outline in reached)


def test_folded_sections_open_by_keyboard(demo_report, open_page):
    tab = open_page(demo_report).tab
    summary = tab.locator("figure summary").first
    summary.focus()
    tab.keyboard.press("Enter")
    assert tab.locator("figure details").first.get_attribute("open") is not None
    tab.locator(".skip").focus()
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "verdict"


def test_the_command_is_copied_by_key(demo_report, open_page):
    page = open_page(demo_report, permissions=["clipboard-read", "clipboard-write"])
    page.tab.locator("[data-copy]").first.focus()
    page.tab.keyboard.press("Enter")
    page.tab.wait_for_function("() => document.getElementById('status').textContent == 'Copied'")
    copied = page.tab.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("joulewise sweep --sim v100 --workload resnet50 --power-limit full")


def test_axe_finds_nothing_in_the_demos_report(demo_report, open_page):
    assert_accessible(open_page(demo_report))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_in_folded_sections(theme, page_file, open_page):
    def fails():
        raise ValueError

    broken = replace(CHART, key="broken", drawing=fails)
    page = replace(PAGE, sections=(*PAGE.sections, Section("More", charts=(broken,))))
    opened = open_page(page_file(page), color_scheme=theme)
    opened.tab.locator("details").evaluate_all("all => all.forEach(d => d.open = true)")
    assert_accessible(opened)


def assert_accessible(opened):
    opened.see_all()
    found = Axe().run(opened.tab)
    assert found.violations_count == 0, found.generate_report()


def test_downloads_are_the_tables_and_the_result(page_file, open_page):
    tab = open_page(page_file(PAGE)).tab
    with tab.expect_download() as csv_file:
        tab.locator("[data-table='0']").first.click()
    assert csv_file.value.suggested_filename == "energy-by-limit.csv"
    text = csv_file.value.path().read_text("utf-8")
    assert list(csv.reader(text.splitlines())) == list(csv.reader(as_csv(TABLE).splitlines()))
    with tab.expect_download() as json_file:
        tab.locator("[data-result]").click()
    assert json.loads(json_file.value.path().read_text("utf-8")) == PAGE.data


def test_a_figure_is_saved_in_each_format(page_file, open_page):
    tab = open_page(page_file(PAGE)).tab
    tab.locator("figure summary").click()
    saved = {}
    for form in ("svg", "png", "json"):
        with tab.expect_download() as file:
            tab.locator(f"[data-form={form}]").click()
        saved[file.value.suggested_filename] = file.value.path().read_bytes()
    assert list(saved) == ["energy.svg", "energy.png", "energy.vl.json"]
    assert saved["energy.svg"].startswith(b"<svg")
    assert saved["energy.png"].startswith(b"\x89PNG")
    assert json.loads(saved["energy.vl.json"])["datasets"]["runs"] == list(TABLE.records)


def test_one_figure_that_fails_is_named_and_the_others_are_drawn(page_file, open_page):
    def fails():
        raise ValueError("<b>no</b>")

    def cannot_be_drawn():
        import altair as alt

        return alt.Chart(alt.NamedData("runs")).transform_filter("][").mark_line()

    broken = [
        Chart("broken", "Broken", "Not there", {"runs": TABLE}, fails),
        Chart("nonsense", "Nonsense", "Not there", {"runs": TABLE}, cannot_be_drawn),
    ]
    page = open_page(page_file(with_charts(*broken, CHART)))
    page.see_all()
    tab = page.tab
    assert tab.locator("figure[data-drawn]").count() == 1
    assert "broken failed with ValueError: <b>no</b>" in tab.locator(".problem").inner_text()
    assert "could not be drawn" in tab.locator("figure[data-failed] .chart").inner_text()
    assert any("figure-2" in problem for problem in page.problems)


def test_without_javascript_a_sentence_and_the_tables_remain(demo_report, open_page):
    tab = open_page(demo_report, java_script_enabled=False).tab
    assert tab.locator(".without-js").first.is_visible()
    assert not tab.locator("button:visible").count()
    tab.locator("figure summary").first.click()
    assert tab.locator("figure details table").first.is_visible()


def test_inserted_text_is_escaped(page_file, open_page):
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m"
    hostile = replace(
        with_charts(replace(CHART, title=evil, description=evil, tables={"runs": _evil(evil)})),
        title=evil,
        verdict=evil,
        facts=(evil,),
        notices=(Notice(evil, evil),),
        environment={evil: evil},
        commands=((evil, evil),),
        data={evil: evil},
    )
    page = open_page(page_file(hostile))
    page.see_all()
    assert not page.problems
    assert not page.violations
    assert page.tab.locator("img").count() == 0
    shown = evil.replace("\x1b", "\\x1b")
    assert page.tab.locator("#verdict").inner_text() == shown
    assert page.tab.title() == shown


def _evil(text):
    row = {**TABLE.records[0], "note": text}
    return replace(TABLE, title=text, rows=((text, text, text),), records=(row,), note=text)


def test_an_injected_script_is_blocked(page_file, open_page):
    """The second wall, in case that the first has a hole."""
    html = "<script>window.came = 1</script><img src='https://example.invalid/a.png'>"
    page = open_page(page_file(PAGE, lambda text: text.replace("<main>", f"<main>{html}")))
    assert page.tab.evaluate("window.came") is None
    assert [each.split("-")[0] for each in page.violations] == ["script", "img"]


def test_the_page_loads_nothing_from_the_network(demo_report):
    html = demo_report.read_text("utf-8")
    head = html[: html.index("</head>")]
    body = re.sub(r"<script.*?</script>", "", html[html.index("<body>") :], flags=re.DOTALL)
    loads = re.findall(r"""\b(?:src|href|srcset|data|action|poster)\s*=\s*["']?([^"'\s>]+)""", body)
    assert not [each for each in loads if OUTSIDE.search(each)]
    assert "url(" not in head
    assert "@import" not in head
    assert "default-src &#39;none&#39;" in head
    assert "unsafe-eval" not in head


def test_the_page_is_small(demo_report):
    assert Path(demo_report).stat().st_size <= 3_000_000

"""The list, and what it leads to."""

import html
import json
import re
import shutil
from dataclasses import replace
from urllib.parse import quote

import pytest

from joulewise.data.sweeps import Setting
from joulewise.serve import listing
from joulewise.serve.lookup import stamp
from joulewise.store.layout import LIVE, MANIFEST
from joulewise.store.runs import new_run
from joulewise.sweep.space import Space
from joulewise.sweep.spec import SweepSpec
from joulewise.sweep.stored_sweeps import SWEEP_FILE, as_text, create_sweep, load_sweep

AS_IT_IS = Setting.of({"power_limit_w": None})
OLD, NEW = "20261101-120000-aaaa", "20261116-003512-bbbb"
HOSTILE = "<script>alert(1)</script>\x1b[31m\"'&"


@pytest.fixture
def two(make_run):
    make_run(OLD, name="old", tags=("a", "x[1]*"), group="7", wall_start_ns=1_793_534_400 * 10**9)
    make_run(NEW, name="new", watts=500.0, exit_code=3, wall_start_ns=1_794_790_000 * 10**9)


def order(answer):
    return re.findall(r'href="run/([^"]+)"', answer.text)


@pytest.mark.usefixtures("two")
class TestList:
    def test_rows_show_name_state_time_and_energy(self, view):
        words = view.get().words
        assert "2 runs; 0 sweeps." in words
        assert f"old {OLD} python train.py finished 10.0 s 2.00 kJ" in words
        assert "measured" in words
        assert "new" in words
        assert " failed (exit 3) " in words

    @pytest.mark.parametrize(
        ("query", "found"),
        [
            ("", [NEW, OLD]),
            ("sort=started&order=rising", [OLD, NEW]),
            ("sort=energy", [NEW, OLD]),
            ("sort=energy&order=rising", [OLD, NEW]),
            ("sort=name", [OLD, NEW]),
            ("sort=nonsense", [NEW, OLD]),
            ("sort=group", [OLD, NEW]),
            ("filter=name=old", [OLD]),
            ("filter=energy%3E3kJ", [NEW]),
            ("filter=tag%3Da+energy%3E3kJ", []),
        ],
    )
    def test_the_list_is_sorted_and_filtered(self, view, query, found):
        assert order(view.get(f"?{query}")) == found

    def test_an_invalid_filter_is_reported_and_hides_nothing(self, view):
        answer = view.get("?filter=colour%3Dred")
        assert answer.status == 200
        assert "no field 'colour'" in answer.words
        assert order(answer) == [NEW, OLD]

    def test_a_heading_sorts_and_then_reverses(self, view):
        first = link(view.get(), "Energy")
        assert order(view.get(first)) == [NEW, OLD]
        assert order(view.get(link(view.get(first), "Energy"))) == [OLD, NEW]

    @pytest.mark.parametrize("label", ["a", "x[1]*", "7"])
    def test_a_tag_or_group_filters_the_list(self, view, label):
        assert order(view.get(link(view.get(), label))) == [OLD]

    def test_a_damaged_run_is_listed_by_its_time(self, view, store):
        for name in ("20261110-000000-cccc", "not-a-date"):
            (store / name).mkdir()
            (store / name / MANIFEST).write_text('{"id')
        text = view.get().text
        places = [text.index(name) for name in (NEW, "20261110-000000-cccc", OLD, "not-a-date")]
        assert places == sorted(places)
        assert "run.json is damaged: it is not whole JSON" in text
        answer = view.get("run/20261110-000000-cccc")
        assert answer.status == 500
        assert "run.json is damaged: it is not whole JSON" in answer.words

    def test_runs_of_sweeps_do_not_hide_the_others(self, view, make_run):
        for number in range(21):
            make_run(f"20261102-0000{number:02d}-dddd", tags=("sweep:s",))
        first = view.get()
        assert order(first) == [NEW, OLD]
        assert "23 runs" in first.words
        assert "21 runs of sweeps are hidden" in first.words
        assert len(order(view.get(link(first, "Show them")))) == 23


class TestPages:
    IDS = tuple(f"20261101-12000{number}-aaaa" for number in range(5))

    @pytest.fixture(autouse=True)
    def five(self, make_run, store, monkeypatch):
        monkeypatch.setattr(listing, "PAGE", 2)
        first = make_run(self.IDS[0], name="a")
        for run_id in self.IDS[1:]:
            shutil.copytree(first, store / run_id)
            path = store / run_id / MANIFEST
            payload = json.loads(path.read_text().replace(self.IDS[0], run_id))
            del payload["crc32"]
            path.write_text(json.dumps(payload))

    def test_each_run_is_on_one_page_and_pages_are_linked(self, view):
        answer = view.get()
        assert "5 runs; 0 sweeps." in answer.words
        assert "1 to 2 of 5, page 1 of 3" in answer.words
        assert "Previous" not in answer.words
        found = order(answer)
        for _ in range(2):
            answer = view.get(link(answer, "Next"))
            found += order(answer)
        assert found == list(reversed(self.IDS))
        assert "5 to 5 of 5, page 3 of 3" in answer.words
        assert "Next" not in answer.words
        assert order(view.get(link(answer, "First"))) == found[:2]

    def test_sorting_and_filtering_begin_at_the_first_page_and_stay(self, view):
        answer = view.get("?filter=name%3Da&sort=started&order=rising&page=2")
        assert order(answer) == list(self.IDS[2:4])
        assert order(view.get(link(answer, "Next"))) == [self.IDS[4]]
        assert order(view.get(link(answer, "Started"))) == [self.IDS[4], self.IDS[3]]

    @pytest.mark.parametrize("page", ["99", "0", "-1", "x", "9" * 30, "²"])
    def test_a_page_number_beyond_the_last_shows_the_last(self, view, page):
        answer = view.get(f"?page={quote(page)}")
        assert answer.status == 200
        assert len(order(answer)) == (1 if page == "99" else 2)

    def test_unreadable_runs_are_on_their_page(self, view, store):
        (store / self.IDS[1] / MANIFEST).write_text("{")
        assert "run.json is damaged: it is not whole JSON" in view.get("?page=2").text
        assert "run.json is damaged: it is not whole JSON" in view.get("?sort=energy&page=3").text


def test_a_run_in_progress_shows_its_energy_so_far(view, store):
    run = new_run(store)
    energy = {"value": 1234.0, "error": 12.0, "error_sampling": 12.0, "error_gain": 0.0}
    energy |= {"source": "measured", "at_least": False}
    live = {"t_ns": 1, "time_s": 4.5, "energy_j": {"total": energy}, "counted": ["gpu0"]}
    (run / LIVE).write_text(json.dumps(live))
    assert "recording 4.50 s 1.23 kJ" in view.get().words


def link(answer, label):
    found = re.search(rf'href="([^"]*)">{re.escape(html.escape(label))}</a>', answer.text)
    return html.unescape(found[1])


def test_an_empty_store(view):
    assert "joulewise run -- CMD records one" in view.get().words


def test_a_missing_store_is_an_empty_list(view, store):
    store.rmdir()
    assert view.get().status == 200


@pytest.mark.parametrize("inside", ["", "run/{0}", "live/{0}", "now/{0}"])
def test_hostile_names_are_escaped(view, make_run, inside):
    make_run(NEW, name=HOSTILE, tags=(HOSTILE,), group=HOSTILE, host={"name": HOSTILE})
    answer = view.get(inside.format(NEW))
    assert answer.status == 200
    assert "\x1b" not in answer.text
    if answer.headers["Content-Type"].startswith("text/html"):
        assert "<script>alert" not in answer.text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in answer.text


def test_a_hostile_address_is_not_echoed_as_html(view):
    answer = view.get(f"run/{quote('<script>alert(1)</script>')}")
    assert "<script>alert" not in answer.text


class TestReport:
    def test_has_the_finding_and_a_link_to_the_list(self, view, make_run):
        make_run(NEW)
        answer = view.get(f"run/{NEW}")
        assert answer.status == 200
        assert "2.00 kJ" in answer.words
        assert '<a href="../">joulewise: all runs</a>' in answer.text

    def test_is_cached_until_a_file_of_the_run_changes(self, view, make_run, store, monkeypatch):
        from joulewise.report.html import render

        make_run(NEW, name="before")
        made = []
        draw = render.render
        monkeypatch.setattr(render, "render", lambda *arguments: made.append(1) or draw(*arguments))
        first = view.get(f"run/{NEW}").text
        assert view.get(f"run/{NEW}").text == first
        assert len(made) == 1
        shutil.rmtree(store / NEW)
        make_run(NEW, name="afterwards")
        assert "afterwards" in view.get(f"run/{NEW}").text
        assert len(made) == 2

    def test_the_oldest_reports_leave_the_cache(self, view, make_run, monkeypatch):
        from joulewise.serve import lookup

        monkeypatch.setattr(lookup, "_CACHE_B", 1)
        for run in (OLD, NEW):
            make_run(run)
            assert view.get(f"run/{run}").status == 200
        site = view.server._answer.__self__
        assert list(site._reports._cache) == [("run", NEW)]


@pytest.mark.usefixtures("two")
class TestComparison:
    def test_of_two_runs(self, view):
        answer = view.get(f"compare?a={OLD}&b={NEW}")
        assert answer.status == 200
        assert "150" in answer.words  # percent: 500 W after 200 W
        assert '<a href="./">joulewise: all runs</a>' in answer.text
        assert f"joulewise compare {OLD} {NEW}" in html.unescape(answer.text)

    def test_has_the_figures_that_compare_has(self, view, store):
        from joulewise.report.html.pages import compare_page
        from joulewise.report.views.compare import compared

        own = compare_page(compared(store, OLD, NEW))
        titles = [chart.title for section in own.sections for chart in section.charts]
        assert "Power over time of A and B" in titles
        answer = view.get(f"compare?a={OLD}&b={NEW}")
        assert [title for title in titles if title not in answer.words] == []

    @pytest.mark.parametrize(
        "query", ["", f"a={OLD}", f"a={OLD}&b={OLD}", f"a={OLD}&b={NEW}&b={OLD}"]
    )
    def test_needs_two_sides(self, view, query):
        answer = view.get(f"compare?{query}")
        assert answer.status == 400
        assert "a comparison needs a side A and a side B" in answer.words

    def test_the_list_offers_both_sides(self, view):
        boxes = re.findall(r'name="([ab])" value="([^"]+)"', view.get().text)
        assert boxes == [("a", NEW), ("b", NEW), ("a", OLD), ("b", OLD)]


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("inside", [f"run/{NEW}", f"live/{NEW}", f"compare?a={OLD}&b={NEW}"])
def test_a_run_deleted_during_a_request_is_not_found(view, store, monkeypatch, inside):
    from joulewise.serve import lookup, site

    def too_late(folder):
        shutil.rmtree(store / NEW, ignore_errors=True)
        return stamp(folder)

    for module in (lookup, site):
        monkeypatch.setattr(module, "stamp", too_late)
    answer = view.get(inside)
    assert answer.status == 404
    assert "deleted" in answer.words
    assert "go back to the list" in answer.words


@pytest.mark.usefixtures("two")
def test_an_unreadable_disk_is_not_reported_as_a_bug(view, monkeypatch):
    from joulewise.serve import lookup

    def broken(folder):
        raise PermissionError(13, "Permission denied", str(folder / "trace"))

    monkeypatch.setattr(lookup, "stamp", broken)
    answer = view.get(f"run/{NEW}")
    assert answer.status == 500
    assert "Permission denied" in answer.words
    assert "bug" not in answer.words


def test_a_stamp_differs_after_a_change(make_run):
    run = make_run(NEW)
    before = stamp(run)
    assert stamp(run) == before
    (run / "trace" / "new").write_text("x")
    assert stamp(run) != before


def test_sweeps_are_paged(view, store, monkeypatch):
    monkeypatch.setattr(listing, "PAGE", 2)
    folders = []
    for number in range(5):
        folder = create_sweep(store, SweepSpec(), Space((AS_IT_IS,), AS_IT_IS))
        text = as_text(replace(load_sweep(folder), start_wall_ns=number + 1))
        (folder / SWEEP_FILE).write_text(text)
        folders.append(folder.name)
    answer = view.get()
    assert "0 runs; 5 sweeps." in answer.words
    assert "1 to 2 of 5 sweeps, page 1 of 3" in answer.words
    found = sweep_order(answer)
    for _ in range(2):
        answer = view.get(link(answer, "Next sweeps"))
        found += sweep_order(answer)
    assert found == folders[::-1]
    assert "Next sweeps" not in answer.words
    assert sweep_order(view.get(link(answer, "First sweeps"))) == found[:2]
    assert sweep_order(view.get("?sweeps=99")) == found[4:]


def sweep_order(answer):
    return re.findall(r'href="sweep/([^"]+)"', answer.text)

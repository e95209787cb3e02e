"""``joulewise report``: where it writes, what it means, and that all forms tell the same."""

import csv
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from joulewise.cli.report_files import FORMATS
from tests.helpers.sample_pages import embedded_data

ID, OTHER = "20261116-003512-7f3a", "20261116-003513-11bc"
EVIL = "=cmd()</script><script>alert(1)</script><img src=x>\x1b[31m|&_%"


class Cells(HTMLParser):
    """Of every table its rows, by its caption; and all tags."""

    def __init__(self, html):
        super().__init__()
        self.tables, self.tags = {}, []
        self._caption = self._cell = None
        self.feed(html)

    def handle_starttag(self, tag, _attrs):
        self.tags.append(tag)
        if tag == "caption":
            self._caption = ""
        elif tag == "tr":
            self.tables[self._title].append([])
        elif tag in {"td", "th"}:
            self._cell = ""

    def handle_data(self, data):
        if self._cell is not None:
            self._cell += data
        elif self._caption is not None:
            self._caption += data

    def handle_endtag(self, tag):
        if tag == "caption":
            self._title, self._caption = self._caption.strip(), None
            self.tables[self._title] = []
        elif tag in {"td", "th"}:
            self.tables[self._title][-1].append(self._cell)
            self._cell = None


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture
def sweep(joulewise):
    ran = joulewise(
        *("sweep", "--sim", "v100", "--workload", "resnet50", "--power-limit", "150:300:50"),
        *("--repeat", "2", "--json", "-"),
    )
    return json.loads(ran.stdout)["id"]


def test_it_shows_where_the_page_is_and_replaces_only_its_own(joulewise, make_run):
    make_run(ID)
    made = Path(f"joulewise-{ID}.html")
    for _ in range(2):
        ran = joulewise("report", ID)
        assert ran.returncode == 0
        assert str(made) in ran.stderr
    assert made.read_text("utf-8").startswith("<!doctype html>")
    made.write_text("a letter to grandmother", encoding="utf-8")
    ran = joulewise("report", ID)
    assert ran.returncode == 2
    assert "is not a joulewise report" in ran.stderr
    assert made.read_text("utf-8") == "a letter to grandmother"
    assert joulewise("report", ID, "--force").returncode == 0
    assert "<!doctype html>" in made.read_text("utf-8")


def test_several_go_into_a_folder(joulewise, make_run):
    make_run(ID)
    make_run(OTHER)
    assert joulewise("report", ID, OTHER, "-o", "one.html").returncode == 2
    assert joulewise("report", ID, OTHER, "-o", "pages/").returncode == 0
    names = sorted(path.name for path in Path("pages").iterdir())
    assert names == [f"joulewise-{ID}.html", f"joulewise-{OTHER}.html"]


def test_no_folder_is_made_that_was_not_requested_for(joulewise, make_run):
    make_run(ID)
    for asked in (["-o", "no/page.html"], ["--json", "no/told.json"]):
        ran = joulewise("report", ID, *asked)
        assert ran.returncode == 2
        assert "there is no folder no" in ran.stderr
    assert not Path("no").exists()


def test_a_full_disk_is_shown(joulewise, make_run):
    make_run(ID)
    ran = joulewise("report", ID, "--json", "/dev/full")
    assert ran.returncode == 125
    assert "cannot write /dev/full: the disk is full" in ran.stderr


def test_last_after_a_sweep_is_the_sweep(joulewise, sweep):
    payload = json.loads(joulewise("report", "last", "--json", "-").stdout)
    assert payload["id"] == sweep
    assert [*Path().iterdir()] == []


def test_the_json_is_that_of_show_and_of_choose(joulewise, make_run, sweep):
    make_run(ID)
    assert (
        joulewise("report", ID, "--json", "-").stdout == joulewise("show", ID, "--json", "-").stdout
    )
    chosen = json.loads(joulewise("choose", sweep, "--json", "-").stdout)
    reported = json.loads(joulewise("report", sweep, "--json", "-").stdout)
    assert reported == {key: value for key, value in chosen.items() if key != "outlook"}


def test_a_table_of_measurements_will_do(joulewise):
    Path("m.csv").write_text(
        "power_limit_w,time_s,energy_j\n" + "200,11,1900\n250,10,2000\n" * 3, encoding="utf-8"
    )
    ran = joulewise("report", "m.csv", "--reference", "power_limit_w=250")
    assert ran.returncode == 0, ran.stderr
    assert "200 W takes 5.0" in Path("joulewise-m.html").read_text("utf-8")


def test_a_group_is_one_page_with_its_runs(joulewise, make_run):
    make_run(ID, group="job 7", host={"name": "n1"}, boot_id="1")
    make_run(OTHER, group="job 7", host={"name": "n2"}, boot_id="2")
    assert joulewise("report", "job 7").returncode == 0
    page = Path("joulewise-job-7.html").read_text("utf-8")
    assert "<title>group job 7" in page
    assert "2 nodes" in page
    tables = Cells(page).tables
    assert [row[:2] for row in tables["Runs of the group"][1:]] == [[ID, "n1"], [OTHER, "n2"]]


def test_of_a_name_that_several_have_it_is_the_newest_and_shows_so(joulewise, make_run):
    make_run(ID, name="twice")
    make_run(OTHER, name="twice")
    ran = joulewise("report", "twice")
    assert "2 runs have the name 'twice'; the newest is used\n" in ran.stderr
    assert [path.name for path in Path().iterdir()] == [f"joulewise-{OTHER}.html"]
    for sure in (OTHER, "last"):
        assert "newest" not in joulewise("report", sure).stderr


def test_nothing_of_that_name(joulewise, make_run):
    make_run(ID)
    ran = joulewise("report", "nonsense")
    assert ran.returncode == 2
    assert "no run, tag, group or sweep 'nonsense'" in ran.stderr


def test_every_sentence_begins_with_a_capital(joulewise, sweep):
    assert joulewise("report", sweep, "-o", "page.html").returncode == 0
    page = Path("page.html").read_text("utf-8")
    lists = re.findall(r'<ul class="sentences">(.*?)</ul>', page, re.DOTALL)
    sentences = [text for each in lists for text in re.findall("<li>(.*?)</li>", each)]
    assert any("uadratic fit of" in text for text in sentences)
    assert [text for text in sentences if text[0].islower()] == []


def test_figures_and_tables_are_files_and_then_no_page_is_written(joulewise, sweep):
    ran = joulewise(
        *("report", sweep, "--figures", "figures", "--format", "svg,csv", "--tables", "tables")
    )
    assert ran.returncode == 0, ran.stderr
    assert sorted(path.name for path in Path().iterdir()) == ["figures", "tables"]
    figures = {path.suffix for path in Path("figures").iterdir()}
    assert figures == {".svg", ".csv"}
    choices = {path.suffix: path for path in Path("tables").glob("best-setting-per-objective.*")}
    assert set(choices) == {".csv", ".md", ".tex"}
    assert r"\toprule" in choices[".tex"].read_text("utf-8")
    with choices[".csv"].open(encoding="utf-8") as lines:
        assert next(csv.DictReader(lines))["metric"] == "reference"


def test_tables_are_those_of_what_was_found(joulewise, sweep, make_run):
    """It was 95 files, most of them the numbers behind figures and sensors."""
    make_run(ID)
    assert joulewise("report", sweep, "--tables", "of-sweep").returncode == 0
    assert {path.stem for path in Path("of-sweep").iterdir()} == {
        "best-setting-per-objective",
        "choices-by-boundary",
        "all-settings",
    }
    assert joulewise("report", ID, "--tables", "of-run").returncode == 0
    assert {path.stem for path in Path("of-run").iterdir()} == {
        "time-and-energy-of-the-run",
        "energy-by-device",
        "time-and-energy-of-spans",
    }


def test_the_records_of_devices_may_be_added_up(joulewise, make_run):
    make_run(ID)
    assert joulewise("report", ID, "--tables", "tables").returncode == 0
    devices, run = (
        list(csv.DictReader((Path("tables") / f"{name}.csv").read_text("utf-8").splitlines()))
        for name in ("energy-by-device", "time-and-energy-of-the-run")
    )
    assert {row["device"] for row in devices} == {"gpu0", "gpu1", "cpu0"}
    counted_j = sum(float(row["energy_j"]) for row in devices if row["counted"] == "1")
    assert counted_j == pytest.approx(float(run[0]["energy_j"]))
    for ending in ("md", "tex"):  # for people the last row is the total
        assert "total" in (Path("tables") / f"energy-by-device.{ending}").read_text("utf-8")


def test_an_unknown_form_is_refused_before_any_work(joulewise, sweep):
    ran = joulewise("report", sweep, "--figures", "f", "--format", "svg,bmp")
    assert (ran.returncode, Path("f").exists()) == (2, False)
    assert "'bmp'" in ran.stderr


def test_every_form_of_a_figure_can_be_requested_for():
    from joulewise.report.charts import files

    assert [f".{form}" for form in FORMATS] == [*files.FORMATS]


@pytest.mark.parametrize(
    "idle",
    [
        ["--format", "png"],
        ["--theme", "dark"],
        ["--width-mm", "85"],
        ["--figures", "f", "--width-mm", "85"],
        ["--by", "edp"],
        ["--boundary", "gpu"],
        ["--overhead-w", "0"],
    ],
)
def test_what_would_say_nothing_is_refused(idle, joulewise, make_run):
    make_run(ID)
    ran = joulewise("report", ID, *idle)
    assert ran.returncode == 2, ran.stderr
    assert [*Path().iterdir()] == []


def test_without_the_extra_it_names_the_command_and_tables_still_work(
    joulewise, sweep, monkeypatch
):
    from joulewise.report.html import render

    monkeypatch.setattr(render, "find_spec", lambda name: None if name == "altair" else object())
    ran = joulewise("report", sweep)
    assert ran.returncode == 125
    assert ran.stderr.splitlines()[-2:] == [
        "joulewise: reports and figures need altair, not installed here",
        "  pip install 'joulewise[report]'",
    ]
    monkeypatch.setitem(sys.modules, "altair", None)
    assert joulewise("report", sweep, "--tables", "tables").returncode == 0


def test_every_form_reports_the_same_numbers(joulewise, sweep):
    ran = joulewise("report", sweep, "-o", "r.html", "--tables", "tables")
    assert ran.returncode == 0, ran.stderr
    html = Path("r.html").read_text("utf-8")
    data, cells = embedded_data(html), Cells(html).tables
    payload = json.loads(joulewise("choose", sweep, "--json", "-").stdout)
    terminal = joulewise("choose", sweep, "--points").stdout

    by_name = {table["file"]: table for table in data["tables"]}
    for name, table in by_name.items():
        if not (render := Path("tables") / f"{name}.csv").exists():
            continue
        written = list(csv.reader(render.read_text("utf-8").splitlines()))
        source = [table["source"]] if table.get("source") else []  # the script adds it, too
        assert written[0] == [*table["columns"], *(["source"] if source else [])], name
        assert [list(map(_number, row)) for row in written[1:]] == [
            [None if value == "" else value for value in (*row, *source)] for row in table["rows"]
        ], name

    points = by_name["all-settings"]
    for row, point in zip(points["rows"], payload["points"], strict=True):
        record = dict(zip(points["columns"], row, strict=True))
        assert record["power_limit_w"] == point["settings"]["power_limit_w"]
        for quantity in ("energy_j", "time_s"):
            assert record[quantity] == point[quantity]["mean"]
            assert record[f"{quantity}_low"] == point[quantity]["low"]

    lines = [" ".join(line.split()) for line in terminal.splitlines()]
    for title in ("Best setting per objective", "All settings"):
        for row in cells[f"{title} (GPU simulated)"][1:]:
            shown = " ".join(" ".join("-" if cell == "\u2013" else cell for cell in row).split())
            assert shown in lines, title
    assert data["result"]["best"] == payload["best"]

    drawn = {number for chart in data["charts"].values() for number in chart["data"].values()}
    assert drawn <= set(range(len(data["tables"])))
    assert all("datasets" not in chart["spec"] for chart in data["charts"].values())
    for chart in data["charts"].values():
        assert {source["name"] for source in _sources(chart["spec"])} <= set(chart["data"])


def test_a_runs_forms_tell_the_same_numbers(joulewise, make_run):
    make_run(ID)
    assert joulewise("report", ID, "-o", "r.html").returncode == 0
    html = Path("r.html").read_text("utf-8")
    payload = json.loads(joulewise("show", ID, "--json", "-").stdout)["energy_j"]
    table = next(
        each for each in embedded_data(html)["tables"] if each["file"] == "energy-by-device"
    )
    records = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    for record in records:
        for name in ("value", "error", "error_sampling", "error_gain"):
            assert record[f"{name.replace('value', 'energy')}_j"] == payload[record["device"]][name]
    lines = [" ".join(line.split()) for line in joulewise("show", ID).stdout.splitlines()]
    for row in Cells(html).tables["Energy by device"][1:]:
        device, energy, error, _, _, mean, *_ = row
        assert any(line.startswith(f"{device} {energy} {error} {mean}") for line in lines), row


def _sources(spec):
    """Every place where a drawing says what its data is."""
    if isinstance(spec, list):
        return [source for each in spec for source in _sources(each)]
    if not isinstance(spec, dict):
        return []
    own = [spec["data"]] if isinstance(spec.get("data"), dict) else []
    return own + [source for each in spec.values() for source in _sources(each)]


def _number(text):
    if text == "":
        return None
    try:
        return float(text)
    except ValueError:
        return text


def test_hostile_words_are_text_in_every_form(joulewise, make_run):
    make_run(ID, name=EVIL, tags=(EVIL,), host={"name": EVIL}, group=EVIL)
    make_run(OTHER, group=EVIL, host={"name": EVIL})
    ran = joulewise("report", EVIL, "-o", "r.html", "--tables", "tables", "--json", "r.json")
    assert ran.returncode == 0, ran.stderr
    html = Path("r.html").read_text("utf-8")
    assert "\x1b" not in html
    assert "img" not in Cells(html).tags
    assert Cells(html).tags.count("script") == 4
    assert "\x1b" not in ran.stdout + ran.stderr
    assert json.loads(Path("r.json").read_text("utf-8"))["id"] in {ID, EVIL}


def test_hostile_settings_are_text_in_every_form(joulewise):
    rows = "".join(f'200,"{EVIL}",{10 + n},2000\n250,"{EVIL}",{9 + n},2100\n' for n in range(3))
    Path("m.csv").write_text(f"power_limit_w,{EVIL},time_s,energy_j\n{rows}", encoding="utf-8")
    ran = joulewise("report", "m.csv", "-o", "r.html", "--tables", "tables")
    assert ran.returncode == 0, ran.stderr
    html = Path("r.html").read_text("utf-8")
    assert "img" not in Cells(html).tags
    assert "<script>alert" not in html
    for path in Path("tables").iterdir():
        text = path.read_text("utf-8")
        assert path.suffix in {".json", ".csv"} or "\x1b" not in text, path
        if path.suffix == ".csv":
            cells = [cell for row in csv.reader(text.splitlines()) for cell in row]
            assert not [cell for cell in cells if cell.startswith("=")], path
        if path.suffix == ".tex":
            assert not re.search(r"(?<!\\)[%&_#](?!\s)", text.replace(" & ", " ")), path
        if path.suffix == ".md":
            assert "<script>" not in text, path


def test_a_damaged_trace_is_reported_in_its_place(joulewise, sweep, store):
    run = next(path for path in sorted(store.iterdir()) if path.name != "sweeps")
    for render in (run / "trace").iterdir():
        render.write_bytes(render.read_bytes()[:100])
    ran = joulewise("report", run.name)
    assert ran.returncode == 0, ran.stderr
    html = Path(f"joulewise-{run.name}.html").read_text("utf-8")
    assert "Energy by device (GPU simulated)" in Cells(html).tables
    assert f"Warning:</strong> {run.name} is in no figure: its trace cannot be read" in html
    assert not embedded_data(html)["charts"]
    assert joulewise("report", sweep).returncode == 0
    assert embedded_data(Path(f"joulewise-{sweep}.html").read_text("utf-8"))["charts"]

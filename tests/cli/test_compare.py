"""``joulewise compare``: what is meant by A and B, what is shown, and how it ends."""

import csv
import io
import json
import shutil

import pytest

from joulewise.analyse.run_result import analyse
from joulewise.analyse.stored_result import write_result
from joulewise.store.checksums import write_final_checksums
from tests.helpers.run_directories import S

HOSTILE = "<b>=cmd()\x1b[31m"


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    return tmp_path_factory.mktemp("made") / "runs"


@pytest.fixture
def before_and_after(make_run, store, made_once):
    """Three runs of each name: 200 W before, 150 W after, apart by about a percent."""
    if made_once.exists():
        shutil.copytree(made_once, store)
        return
    for number, more in enumerate((0.0, 1.0, 2.0)):
        make_run(f"20260101-00000{number}-aaaa", name="before", watts=200 + more)
        make_run(
            f"20260102-00000{number}-bbbb",
            name="after",
            tags=("b",),
            watts=150 + more,
            wall_start_ns=(1_800_000_001 + number) * S,
        )
    shutil.copytree(store, made_once)


@pytest.fixture
def single(make_run):
    make_run("20260101-000000-aaaa", name="one", watts=200.0)
    make_run("20260102-000000-bbbb", name="other", watts=150.0)


def compare_json(joulewise, *args):
    ran = joulewise("compare", *args, "--json", "-")
    assert ran.returncode in {0, 1}, ran.stderr
    return json.loads(ran.stdout)


def ratio(result, quantity):
    (found,) = [it for it in result["quantities"] if it["quantity"] == quantity]
    return found


@pytest.mark.usefixtures("before_and_after")
def test_two_names_are_two_groups(joulewise):
    result = compare_json(joulewise, "before", "after")
    found = ratio(result, "gpu0")
    assert (found["a"]["n"], found["b"]["n"]) == (3, 3)
    assert found["ratio"]["mean"] == pytest.approx(151 / 201, rel=0.01)
    assert found["verdict"] == "less"
    assert found["basis"] == "spread of the runs"
    assert result["finding"].startswith("B takes ")


@pytest.mark.usefixtures("before_and_after")
@pytest.mark.parametrize(
    ("which", "number"),
    [
        ("b", 3),
        ("20260102-000001", 1),
        ("last", 1),
        ("20260102-000000-bbbb,20260102-000001-bbbb", 2),
        ("20260102-000000-bbbb, after", 3),
    ],
)
def test_what_a_side_may_be(joulewise, which, number):
    assert len(compare_json(joulewise, "before", which)["b"]["runs"]) == number


@pytest.mark.usefixtures("before_and_after")
def test_a_run_directory_or_a_folder_of_them_stored_elsewhere(joulewise, store, tmp_path):
    kept = tmp_path / "baseline"
    for run in store.glob("20260101-*"):
        shutil.copytree(run, kept / run.name)
        shutil.rmtree(run)
    assert len(compare_json(joulewise, str(kept), "after")["a"]["runs"]) == 3
    one = kept / "20260101-000001-aaaa"
    assert compare_json(joulewise, str(one), "after")["a"]["runs"] == [one.name]


def test_a_group_is_one_run(joulewise, make_run):
    for node in ("n1", "n2"):
        for day, group in (("01", "job1"), ("02", "job2")):
            make_run(f"202601{day}-000000-{node}aa", group=group, host={"name": node})
    result = compare_json(joulewise, "job1", "job2")
    assert result["a"]["runs"] == ["job1"]
    assert ratio(result, "energy")["a"]["n"] == 1


@pytest.mark.usefixtures("single")
def test_single_runs_say_what_the_verdict_rests_on(joulewise):
    ran = joulewise("compare", "one", "other")
    assert ran.returncode == 0
    assert (
        "there is one run on each side: the verdicts allow for the measurement error" in ran.stdout
    )
    assert "too few runs to be sure" in ran.stdout


@pytest.mark.usefixtures("before_and_after")
@pytest.mark.parametrize(
    ("condition", "status", "said"),
    [
        ("gpu0>-10%", 0, "passed: gpu0>-10% is not true: B has 24."),
        ("gpu0<-10%", 1, "failed: gpu0<-10% is true: B has 24."),
        ("gpu0>1kJ", 1, "failed: gpu0>1kJ is true: B's energy of gpu0 is 1.5"),
        ("gpu0<-400J", 1, "failed: gpu0<-400J is true: B has 50"),
        ("time>+5%", 0, "passed: time>+5% is not true"),
        ("energy/epoch>+5%", 0, "passed: energy/epoch>+5% is not true"),
    ],
)
def test_conditions_end_with_their_status_and_say_why(joulewise, condition, status, said):
    ran = joulewise("compare", "before", "after", "--fail-if", condition)
    assert ran.returncode == status
    assert said in ran.stdout


@pytest.mark.usefixtures("before_and_after")
def test_one_of_several_conditions_is_enough(joulewise):
    ran = joulewise("compare", "before", "after", "--fail-if", "time>+5%", "--fail-if", "gpu0<-1%")
    assert ran.returncode == 1


@pytest.mark.usefixtures("before_and_after")
def test_surely_is_beyond_the_whole_interval(joulewise):
    found = ratio(compare_json(joulewise, "before", "after"), "gpu0")["ratio"]
    between = 100 * ((found["low"] + found["mean"]) / 2 - 1)
    over = f"gpu0>{between:+.2f}%"
    assert joulewise("compare", "before", "after", "--fail-if", over).returncode == 1
    ran = joulewise("compare", "before", "after", "--fail-if", over, "--sure")
    assert ran.returncode == 0
    assert "is not surely true" in ran.stdout


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--fail-if", "energi>+5%"], "there is no quantity 'energi'"),
        (["--fail-if", "energy>5"], "5 has no unit"),
        (["--sure"], "--sure needs --fail-if"),
    ],
)
def test_conditions_are_checked_before_anything_is_read(joulewise, args, said):
    ran = joulewise("compare", "nowhere", "nothing", *args)
    assert ran.returncode == 2
    assert said in ran.stderr


@pytest.mark.usefixtures("before_and_after")
@pytest.mark.parametrize("condition", ["gpu7>+5%", "energy/step>+5%"])
def test_a_quantity_that_there_is_not_is_no_pass(joulewise, condition):
    ran = joulewise("compare", "before", "after", "--fail-if", condition)
    assert ran.returncode == 2
    assert "cannot be judged" in ran.stderr


@pytest.mark.usefixtures("single")
def test_sure_without_an_interval_is_no_pass(joulewise):
    ran = joulewise("compare", "one", "other", "--fail-if", "time>+5%", "--sure")
    assert ran.returncode == 2


@pytest.mark.usefixtures("before_and_after")
@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ("before", "nothing", "has no run, tag, group or sweep 'nothing'"),
        ("before", "20260101-000000", "is on both sides"),
        ("before", "after,nothing", "'nothing'"),
        ("before", "2026010", "begins"),
        ("before", "", "has no run"),
    ],
)
def test_what_cannot_be_intended_is_refused(joulewise, a, b, said):
    ran = joulewise("compare", a, b)
    assert ran.returncode == 2
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.usefixtures("before_and_after")
def test_options_of_sweeps_are_not_ignored(joulewise):
    ran = joulewise("compare", "before", "after", "--boundary", "node")
    assert ran.returncode == 2
    assert "are for sweeps" in ran.stderr


@pytest.mark.usefixtures("before_and_after")
def test_runs_are_not_compared_with_sweeps(joulewise, tmp_path):
    table = tmp_path / "measured.csv"
    table.write_text("power_limit_w,time_s,energy_j\n150,10,1500\n300,8,2000\n")
    ran = joulewise("compare", "before", str(table))
    assert ran.returncode == 2
    assert "is a sweep and before is not" in ran.stderr
    assert "compare runs with runs" in ran.stderr


def test_a_sweep_is_not_compared_with_itself(joulewise, tmp_path):
    table = tmp_path / "measured.csv"
    table.write_text("power_limit_w,time_s,energy_j\n150,10,1500\n300,8,2000\n")
    ran = joulewise("compare", str(table), str(table))
    assert ran.returncode == 2
    assert "is on both sides" in ran.stderr


def test_two_tables_are_two_sweeps(joulewise, tmp_path):
    for name, more in (("a", 1.0), ("b", 1.1)):
        rows = [
            f"{w},{t + block / 100},{more * e}"
            for block in range(3)
            for w, t, e in ((150, 10, 1500), (300, 8, 2000))
        ]
        text = "\n".join(["power_limit_w,time_s,energy_j", *rows])
        (tmp_path / f"{name}.csv").write_text(text)
    paths = [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    result = compare_json(joulewise, *paths)
    assert result["kind"] == "sweeps"
    assert len(result["settings"]) == 2
    ran = joulewise("compare", *paths, "--fail-if", "energy>+5%", "--by", "energy")
    assert ran.returncode == 1
    assert "so at 2 of 2 settings" in ran.stdout
    assert joulewise("compare", *paths, "--fail-if", "time>+5%").returncode == 0


@pytest.mark.usefixtures("single")
def test_what_did_not_end_well_is_left_out_of_a_group_and_reported(joulewise, make_run):
    make_run("20260103-000000-cccc", name="other", watts=99.0, exit_code=3)
    result = compare_json(joulewise, "one", "other")
    assert len(result["b"]["runs"]) == 1
    (left,) = result["b"]["left_out"]
    assert left == {"run": "20260103-000000-cccc", "reason": "it ended with status 3"}
    ran = joulewise("compare", "one", "20260103-000000-cccc")
    assert ran.returncode == 0
    assert "not every run of B finished without an error" in ran.stdout


@pytest.mark.usefixtures("before_and_after")
def test_a_damaged_run_is_reported_of_in_its_place(joulewise, store, tmp_path):
    kept = tmp_path / "baseline"
    for run in store.glob("20260101-*"):
        shutil.copytree(run, kept / run.name)
        shutil.rmtree(run)
    (kept / "20260101-000001-aaaa" / "run.json").write_text("{")
    ran = joulewise("compare", str(kept), "after")
    assert ran.returncode == 0
    assert "left out of A: 20260101-000001-aaaa" in ran.stdout
    assert "2 runs" in ran.stdout
    ran = joulewise("compare", str(kept / "20260101-000001-aaaa"), "after")
    assert ran.returncode == 125
    assert "not whole JSON" in ran.stderr


@pytest.mark.usefixtures("before_and_after")
def test_a_side_of_damaged_runs_only_is_an_error(joulewise, store, tmp_path):
    kept = tmp_path / "baseline"
    shutil.copytree(store / "20260101-000000-aaaa", kept / "20260101-000000-aaaa")
    (kept / "20260101-000000-aaaa" / "run.json").write_text("{")
    ran = joulewise("compare", str(kept), "after")
    assert ran.returncode == 2
    assert "can be compared" in ran.stderr


def test_hostile_names_stay_text(joulewise, make_run):
    make_run("20260101-000000-aaaa", name=HOSTILE, watts=200.0)
    make_run("20260102-000000-bbbb", name="|x|&_", cwd=HOSTILE, watts=150.0)
    for form in ("text", "markdown", "latex", "csv", "json"):
        ran = joulewise("compare", HOSTILE, "|x|&_", "--format", form)
        assert ran.returncode == 0, ran.stderr
        assert "\x1b" not in ran.stdout


@pytest.mark.usefixtures("before_and_after")
def test_every_form_has_the_same_figures(joulewise):
    found = ratio(compare_json(joulewise, "before", "after"), "gpu0")
    rows = list(
        csv.DictReader(
            io.StringIO(joulewise("compare", "before", "after", "--format", "csv").stdout)
        )
    )
    (row,) = [it for it in rows if it["quantity"] == "gpu0"]
    assert float(row["ratio"]) == found["ratio"]["mean"]
    assert float(row["ratio_low"]) == found["ratio"]["low"]
    records = json.loads(joulewise("compare", "before", "after", "--format", "json").stdout)
    (record,) = [it for it in records if it["quantity"] == "gpu0"]
    assert record["a"] == found["a"]["mean"]
    change = f"{100 * (found['ratio']['mean'] - 1):+.1f} %"
    for form in ("text", "markdown"):
        assert change in joulewise("compare", "before", "after", "--format", form).stdout
    latex = joulewise("compare", "before", "after", "--format", "latex").stdout
    assert change.replace("%", r"\%").replace("-", "$-$") in latex
    assert r"\toprule" in latex


@pytest.mark.usefixtures("before_and_after")
def test_a_condition_is_reported_also_beside_a_table(joulewise):
    ran = joulewise("compare", "before", "after", "--format", "csv", "--fail-if", "gpu0<-1%")
    assert ran.returncode == 1
    assert "failed: gpu0<-1%" in ran.stderr
    assert "failed" not in ran.stdout


def test_a_result_that_was_not_stored_is_computed(joulewise, make_run):
    for at, name in enumerate(("one", "other")):
        path = make_run(f"2026010{at + 1}-000000-aaaa", name=name, result=False)
        assert not (path / "result.json").exists()
    assert compare_json(joulewise, "one", "other")["quantities"]
    write_result(path, analyse(path))


@pytest.mark.usefixtures("before_and_after")
def test_a_page_is_written_and_nothing_else_is_overwritten(joulewise, tmp_path):
    pytest.importorskip("altair")
    page = tmp_path / "page.html"
    ran = joulewise("compare", "before", "after", "--html", str(page))
    assert ran.returncode == 0, ran.stderr
    assert "B takes" in page.read_text("utf-8")
    assert joulewise("compare", "before", "after", "--html", str(page)).returncode == 0
    ran = joulewise("compare", "before", "after", "--html", str(tmp_path / "no" / "page.html"))
    assert ran.returncode == 2
    assert f"there is no folder {tmp_path / 'no'}" in ran.stderr
    assert not (tmp_path / "no").exists()
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    ran = joulewise("compare", "before", "after", "--html", str(precious))
    assert ran.returncode == 2
    assert precious.read_text() == "mine"
    assert (
        joulewise("compare", "before", "after", "--html", str(precious), "--force").returncode == 0
    )


@pytest.mark.usefixtures("before_and_after")
def test_of_a_baseline_two_files_are_enough(joulewise, store, tmp_path):
    expected = compare_json(joulewise, "before", "after")["quantities"]
    for run in store.glob("20260101-*"):
        kept = tmp_path / "baseline" / run.name
        kept.mkdir(parents=True)
        for name in ("run.json", "result.json"):
            shutil.move(run / name, kept / name)
        shutil.rmtree(run)
    assert compare_json(joulewise, str(tmp_path / "baseline"), "after")["quantities"] == expected


@pytest.mark.usefixtures("single")
def test_damage_to_a_side_is_in_the_text_the_json_and_the_page(joulewise, store, tmp_path):
    """Without its result a run is computed again, from what is left of its marks."""
    sound = compare_json(joulewise, "one", "other")
    assert sound["work"]["same"] is True
    assert "run_warning" not in [it["code"] for it in sound["cautions"]]
    run = store / "20260101-000000-aaaa"
    write_final_checksums(run)
    (run / "result.json").unlink()
    (marks,) = (run / "marks").glob("*.marks")
    marks.write_bytes(marks.read_bytes()[:40])
    damaged = compare_json(joulewise, "one", "other")
    assert damaged["work"]["same"] is None
    codes = [it["code"] for it in damaged["cautions"]]
    assert {"run_warning", "work_not_known"} <= {*codes}
    assert "it is not known whether both did the same work" in damaged["finding"]
    page = tmp_path / "page.html"
    ran = joulewise("compare", "one", "other", "--html", str(page))
    for text in (" ".join(ran.stdout.split()), page.read_text()):
        assert f"marks/{marks.name} is damaged" in text

"""``joulewise choose``: of sweeps in the store, and of tables from elsewhere."""

import csv
import io
import json
import re
import shlex
import shutil
from math import ceil

import pytest

from joulewise.simulate.boards import load_board
from joulewise.simulate.workloads import load_workload

SWEEP = ("sweep", "--sim", "v100", "--workload", "resnet50", "--power-limit", "150:300:50")


@pytest.fixture
def swept(joulewise):
    """The id of a sweep of four limits, three times each."""

    def make(*options):
        ran = joulewise(*SWEEP, "--repeat=3", "--json=-", *options)
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)["id"]

    return make


def printed_json(ran):
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_without_a_sweep_the_newest_are_listed(joulewise, swept):
    ids = [swept("--name", "first"), swept("--new")]
    ran = joulewise("choose")
    assert ran.returncode == 0
    heading, *lines = ran.stdout.splitlines()
    assert heading.split() == ["sweep", "name", "started", "state", "runs", "settings", "workload"]
    assert [line.split()[0] for line in lines] == ids
    assert all("finished" in line and "4: limit" in line for line in lines)
    listed = printed_json(joulewise("choose", "--json", "-"))["sweeps"]
    assert [sweep["id"] for sweep in listed] == ids
    assert listed[0]["runs"] == {"whole": 12, "looks": 0, "stopped": 0, "failed": 0}


def test_an_unknown_sweep_is_reported_beside_those_that_there_are(joulewise, swept):
    known = swept()
    ran = joulewise("choose", "nowhere")
    assert ran.returncode == 2
    assert not ran.stdout
    assert any(line.startswith(known) and "finished" in line for line in ran.stderr.splitlines())


def test_where_there_is_no_sweep_it_shows_how_to_make_one(joulewise):
    ran = joulewise("choose")
    assert ran.returncode == 2
    assert "joulewise sweep" in ran.stderr


def damage(store, sweep):
    file = store / "sweeps" / sweep / "sweep.json"
    file.write_text(file.read_text()[:200])


@pytest.mark.parametrize(
    "verb", [("choose", "last"), ("report", "last"), ("show", "last"), ("compare", "last", "b")]
)
def test_a_damaged_newest_sweep_is_named_and_the_newest_sound_one(joulewise, swept, store, verb):
    sound, damaged = swept(), swept("--new")
    # Of one second it could not be told which is the newer.
    older = f"20201116-000000{sound[-5:]}"
    (store / "sweeps" / sound).rename(store / "sweeps" / older)
    damage(store, damaged)
    if verb[0] == "show":  # where there is a run, that is the last
        for run in store.glob("2*"):
            shutil.rmtree(run)
    ran = joulewise(*verb)
    assert (ran.returncode, ran.stdout) == (125, "")
    wrong, do = ran.stderr.splitlines()
    assert f"the newest sweep cannot be read: {damaged}: sweep.json is damaged" in wrong
    assert do.endswith(f"the newest that can be read is {older}")


def test_damaged_sweeps_are_listed_as_such(joulewise, swept, store):
    sound, damaged = swept(), swept("--new")
    damage(store, damaged)
    ran = joulewise("choose")
    assert ran.returncode == 0
    assert sound in ran.stdout
    assert f"cannot be read: {damaged}: sweep.json is damaged" in ran.stderr
    listed = printed_json(joulewise("choose", "--json", "-"))
    assert [sweep["id"] for sweep in listed["sweeps"]] == [sound]
    assert [each["path"].rpartition("/")[2] for each in listed["skipped"]] == [damaged]
    damage(store, sound)
    assert "no sweeps" not in joulewise("choose").stderr


@pytest.mark.parametrize("which", ["last", "name", "id", "prefix"])
def test_a_sweep_is_found_by_any_of_its_names(joulewise, swept, which):
    known = swept("--name", "mine")
    word = {"last": "last", "name": "mine", "id": known, "prefix": known[:-1]}[which]
    assert printed_json(joulewise("choose", word, "--json", "-"))["id"] == known


@pytest.mark.parametrize("form", [(), ("--json", "-"), ("--format", "csv")])
def test_of_a_sweep_that_was_interrupted_it_shows_how_far_it_is(joulewise, swept, store, form):
    older = swept("--name", "older")
    newer = swept("--name", "newer")
    file = store / "sweeps" / newer / "sweep.json"
    payload = json.loads(file.read_text())
    del payload["crc32"]
    kept = [each for each in payload["trials"] if each["block"] < 2]
    file.write_text(json.dumps({**payload, "state": "running", "trials": kept}))
    ran = joulewise("choose", "last", *form)
    assert ran.returncode == 0
    said = ran.stderr if form else ran.stdout
    assert "interrupted: 8 of 12 runs; run the same command again to resume it" in said
    assert newer in said
    assert "interrupted" not in joulewise("choose", older, *form).stderr


def test_a_sweep_without_its_reference_has_no_recommendation(joulewise, swept, store):
    """What is missing is said, and the command that makes it: it goes on with this very sweep."""
    known = swept("--by", "energy")
    file = store / "sweeps" / known / "sweep.json"
    all_of_it = json.loads(file.read_text())
    del all_of_it["crc32"]
    kept = [it for it in all_of_it["trials"] if it["setting"] != all_of_it["reference"]]
    file.write_text(json.dumps({**all_of_it, "state": "running", "trials": kept}))

    ran = joulewise("choose", "last")
    result = printed_json(joulewise("choose", "last", "--json", "-"))
    assert result["best"] == result["outlook"] == result["findings"] == {}
    assert result["state"] == "interrupted"
    assert "no_reference" in {it["code"] for it in result["cautions"]}
    assert "no recommendation: the reference, 300 W, has no run" in ran.stdout
    assert "joulewise run" not in ran.stdout

    *_, missing = (line for line in ran.stdout.splitlines() if "# makes the missing" in line)
    program, *words = shlex.split(missing, comments=True)
    assert program == "joulewise"
    assert joulewise(*words).returncode == 0
    done = printed_json(joulewise("choose", "last", "--json", "-"))
    assert (done["id"], done["state"]) == (known, "finished")
    assert set(done["best"]) == {"energy"}


def test_a_search_counts_its_runs_alike_everywhere(joulewise):
    """Whole runs are called runs; what only guided the search are short trials."""
    axes = ("--power-limit", "150:300:50", "--sm-clock", "900:1500:300", "--by", "edp")
    swept = joulewise("sweep", "--sim", "v100", "--workload", "resnet50", "--adaptive", *axes)
    assert re.search(r"at most \d+ runs and short trials", swept.stderr)
    result = printed_json(joulewise("choose", "last", "--json", "-"))
    runs = sum(point["n"] for point in result["points"])
    search = result["search"]
    (listed,) = printed_json(joulewise("choose", "--json", "-"))["sweeps"]
    *_, line = joulewise("choose").stdout.splitlines()
    assert search["looks"] > 0
    assert runs == search["runs"] == listed["runs"]["whole"] == int(line.split()[4])
    assert search["looks"] == listed["runs"]["looks"]
    shown = joulewise("choose", "last").stdout
    assert f", {runs} runs (" in shown
    assert f"after {runs} runs and {search['looks']} short trials" in shown
    assert search["runs"] + search["looks"] <= search["budget"]


def test_the_energy_of_a_step_that_is_not_stored_is_shown_so(joulewise, swept):
    swept()
    ran = joulewise("choose", "last", "--per", "step")
    assert "not read" not in ran.stdout
    assert "GPU read, but not of every step" in ran.stdout
    *_, finding = (line for line in ran.stdout.splitlines() if "no recommendation" in line)
    assert finding.startswith("no recommendation by energy, EDP, ")
    assert finding.endswith(": the reference, 300 W, has no energy per step")
    told_of = printed_json(joulewise("choose", "last", "--per", "step", "--json", "-"))["cautions"]
    (caution,) = (it for it in told_of if it["code"] == "no_energy")
    assert "--per epoch" in caution["hint"]
    by_time = printed_json(
        joulewise("choose", "last", "--per", "step", "--by", "time", "--json", "-")
    )
    assert by_time["best"]["time"]["settings"] == {"power_limit_w": 300}


def test_where_no_limit_binds_the_reference_is_recommended_and_no_limit_set(joulewise):
    sweep = ("sweep", "--sim", "v100", "--workload", "mnist-small", "--power-limit", "150:300:50")
    swept = joulewise(*sweep, "--repeat", "3", "--by", "energy", "--by", "edp")
    chosen = joulewise("choose", "last")
    for ran in (swept, chosen):
        assert "keep the reference, 300 W" in ran.stdout or "nothing beats" in ran.stdout
        assert "--power-limit=" not in ran.stdout
    result = printed_json(joulewise("choose", "last", "--json", "-"))
    for metric in ("energy", "edp"):
        assert result["best"][metric]["choice"]["recommended"] == {"power_limit_w": 300}
        assert result["outlook"][metric]["command"] is None


def samples_of_an_epoch():
    resnet50 = load_workload("resnet50", load_board("v100"))
    return ceil(resnet50.samples / resnet50.batch_size) * resnet50.batch_size


def test_a_full_training_from_simulated_epochs_and_samples(joulewise, swept):
    swept("--by", "energy")
    run = printed_json(joulewise("choose", "last", "--json", "-"))
    look = printed_json(joulewise("choose", "last", "--epochs", "10", "--json", "-"))
    whole = ("--epochs", "10", "--samples", "1281167")
    full = printed_json(joulewise("choose", "last", *whole, "--json", "-"))
    assert full["per"] == "training"
    ratio = full["reference"]["time_s"]["mean"] / look["reference"]["time_s"]["mean"]
    assert ratio == pytest.approx(1_281_167 / samples_of_an_epoch(), rel=0.02)
    assert look["reference"]["time_s"]["mean"] > 5 * run["reference"]["time_s"]["mean"]
    shown = joulewise("choose", "last", *whole, "--runs-per-year", "100", "--price", "0.3").stdout
    assert "energy: a full training at 150 W takes " in shown
    assert "energy: 100 runs a year save " in shown
    assert "in the currency of --price" in shown


def test_epochs_scale_what_happens_in_them(joulewise, swept):
    swept()
    one, ten = (
        printed_json(joulewise("choose", "last", "--epochs", str(epochs), "--json", "-"))
        for epochs in (1, 10)
    )
    ratio = ten["reference"]["energy_j"]["mean"] / one["reference"]["energy_j"]["mean"]
    assert ratio == pytest.approx(10, rel=0.02)


@pytest.mark.parametrize("points", [False, True])
@pytest.mark.parametrize(
    ("form", "begins"), [("csv", ""), ("markdown", "**"), ("latex", "% left out for width: ")]
)
def test_tables_go_into_papers_and_spreadsheets(joulewise, swept, form, begins, points):
    swept("--by", "edp")
    shown = joulewise("choose", "last", "--format", form, *(["--points"] if points else []))
    assert shown.stdout.startswith(begins)
    if form == "csv":
        rows = list(csv.DictReader(io.StringIO(shown.stdout)))
        limits = [float(row["power_limit_w"]) for row in rows]
        assert limits == [150, 200, 250, 300] if points else limits[0] == 300
        assert all(float(row["energy_j"]) > 0 for row in rows)


@pytest.mark.parametrize("workload", ["ecg", "mnist-small"])
def test_the_csv_has_what_is_recommended_as_the_json_has_it(joulewise, workload):
    """No limit holds mnist-small back: the reference is recommended, whatever is preferred."""
    space = ("--power-limit", "150,225,300", "--repeat", "3", "--name", "s")
    joulewise("sweep", "--sim", "v100", "--workload", workload, *space)
    best = printed_json(joulewise("choose", "s", "--json", "-"))["choices"]["gpu"]
    rows = csv.DictReader(io.StringIO(joulewise("choose", "s", "--format", "csv").stdout))
    shown = {row["metric"]: row["recommended_power_limit_w"] for row in rows}
    assert shown.pop("reference") == ""
    assert {name: float(limit_w) for name, limit_w in shown.items()} == {
        name: choice["recommended"]["power_limit_w"] for name, choice in best.items()
    }
    assert (
        {*shown.values()} == {"300.0"} if workload == "mnist-small" else "150.0" in shown.values()
    )


def test_why_a_choice_has_another_interval_than_its_setting_is_shown(joulewise, swept):
    swept("--by", "energy")
    shown = " ".join(joulewise("choose", "last", "--points").stdout.split())
    assert "allow for the fact that the best of several settings was selected" in shown


def test_narrow_terminals_get_whole_figures(joulewise, swept, monkeypatch):
    swept()
    monkeypatch.setenv("COLUMNS", "80")
    lines = joulewise("choose", "last", "--points").stdout.splitlines()
    assert max(len(line) for line in lines if " choose " not in line) <= 80
    headings = " ".join(line for line in lines if "objective" in line)
    for title in ("verdict", "energy", "time", "at", "±", "(W)"):
        assert title in headings
    row = next(line for line in lines if line.split()[:3] == ["energy", "better", "150"])
    assert len(re.findall(r" % (?:± \d|\[[-+]\d+\.\d, [-+]\d+\.\d\])", row)) == 2


def test_what_is_counted_can_be_another(joulewise, swept):
    swept("--by", "energy")
    gpu = printed_json(joulewise("choose", "last", "--json", "-"))
    heavy = ("--boundary", "node", "--overhead-w", "650")
    node = printed_json(joulewise("choose", "last", *heavy, "--json", "-"))
    assert gpu["best"]["energy"]["settings"] == {"power_limit_w": 150}
    assert node["best"]["energy"]["settings"]["power_limit_w"] > 200
    warned = joulewise("choose", "last", "--overhead-w", "650")
    assert "costs" in warned.stdout
    assert "of the node's" in warned.stdout


TABLE = """power_limit_w,batch_size,time_s,energy_j
300,32,100,20000
300,64,90,21000
150,32,120,14000
150,64,115,15000
"""


def test_a_table_from_elsewhere(joulewise, tmp_path):
    path = tmp_path / "measured.csv"
    path.write_text(TABLE)
    told_of = printed_json(
        joulewise("choose", str(path), "--by", "energy", "--by", "time", "--json", "-")
    )
    assert told_of["reference"]["settings"] == {"power_limit_w": 300, "batch_size": "32"}
    assert told_of["best"]["energy"]["settings"] == {"power_limit_w": 150, "batch_size": "32"}
    assert told_of["best"]["time"]["settings"] == {"power_limit_w": 300, "batch_size": "64"}
    other = joulewise("choose", str(path), "--reference", "batch_size=64", "--json", "-")
    assert printed_json(other)["reference"]["settings"]["batch_size"] == "64"
    shown = joulewise("choose", str(path), "--by", "energy").stdout
    assert shown.rstrip().splitlines()[-1].strip().startswith("joulewise run --power-limit=150 --")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--by", "nothing"), "there is no metric 'nothing'"),
        (("--samples", "10"), "--samples needs --epochs"),
        (("--look-samples", "10"), "--look-samples needs --epochs"),
        (("--look-epochs", "1"), "--look-epochs needs --epochs"),
        (("--price", "0.3"), "--price-per-kwh needs --runs-per-year"),
        (("--gco2-per-kwh", "380"), "--gco2-per-kwh needs --runs-per-year"),
        (("--reference", "batch_size=1"), "a sweep has its own"),
        (("--per", "hour"), "hour"),
        (("--boundary", "moon"), "moon"),
        (("--epochs", "0"), "--epochs"),
        (("--format", "word"), "word"),
    ],
)
def test_what_cannot_be_intended_is_refused(joulewise, swept, arguments, said):
    swept()
    ran = joulewise("choose", "last", *arguments)
    assert ran.returncode == 2
    assert said in ran.stderr
    assert not ran.stdout


def test_runs_of_sweeps_can_be_left_out_of_the_list(joulewise, swept):
    swept("--repeat", "6")
    told_so = joulewise("ls")
    assert "24 of these runs belong to sweeps" in told_so.stderr
    assert "ls --filter 'tag!=sweep:*'" in told_so.stderr
    assert joulewise("ls", "--filter", "tag!=sweep:*").stdout == ""

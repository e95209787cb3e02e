"""A total that lacks a device that counts is a lower bound, wherever it is shown or written."""

import csv
import io
import json
import re

import pytest

from joulewise.data import Energy, Source
from joulewise.data.energy import in_words
from joulewise.data.sweeps import POWER_LIMIT, Setting, Sweep, Trial, TrialState
from joulewise.formatting import energy, figures
from joulewise.sweep.stored_sweeps import SWEEP_FILE, as_text

WHOLE, LOST = "20261116-003511-aaaa", "20261116-003512-bbbb"
AT_LEAST = re.compile(r"at least (\S+) (k?J)")


@pytest.fixture
def runs(make_run):
    """Both took 2.2 kJ; of one, gpu0 was read for 4 of 10 s."""
    make_run(WHOLE, name="whole")
    make_run(LOST, name="lost", until_s=4.0)


def bound_j(text):
    value, unit = AT_LEAST.search(text).groups()
    return float(value) * (1000 if unit == "kJ" else 1)


@pytest.mark.parametrize("value", [83.7, 0.2])
def test_a_bound_has_the_error_of_what_was_read(value):
    bound = Energy(value, 0.5, 0.1, Source.MEASURED, at_least=True)
    stated = {83.7: "± 0.6 %", 0.2: "± 255 %"}[value]
    assert figures(bound) == (energy(bound).removesuffix(f" {stated}"), stated)
    assert energy(bound).startswith("at least ")
    assert re.match(r"at least \S+ J ± (0.61|255) %$", in_words(bound))


@pytest.mark.usefixtures("runs")
class TestRuns:
    def test_the_headline_and_the_table(self, joulewise):
        output = joulewise("show", LOST).stdout
        headline = next(line for line in output.splitlines() if line.startswith("At least "))
        assert "gpu0" in headline
        assert re.match(r"At least \S+ k?J ± \S+ % ", headline)
        assert "% GPU" not in headline
        total = next(line for line in output.splitlines() if line.strip().startswith("total"))
        assert bound_j(total) == pytest.approx(1000, rel=0.05)
        assert re.search(r"at least \S+ \S+ +± \S+ %", total)

    def test_the_mean_of_a_device_shows_of_which_time_it_is(self, joulewise):
        lines = joulewise("show", LOST).stdout.splitlines()
        row = {line.split()[0]: line for line in lines if line.startswith("  ") and line.split()}
        assert re.search(r" 200 W in (3.9|4.0)\d s ", row["gpu0"])
        assert re.search(r" 20.0 W  ", row["cpu0"])
        assert " W" not in row["total"]  # its devices were read for different times
        payload = json.loads(joulewise("show", LOST, "--json", "-").stdout)["energy_j"]
        assert payload["gpu0"]["read_s"] == pytest.approx(4, abs=0.05)
        assert payload["gpu0"]["mean_w"] == pytest.approx(
            payload["gpu0"]["value"] / payload["gpu0"]["read_s"], rel=0.02
        )
        assert payload["cpu0"]["read_s"] is None

    def test_a_run_that_is_complete_does_not_pass_for_a_total_that_is(self, joulewise):
        assert "  finished, energy incomplete · " in joulewise("show", LOST).stdout
        assert "  finished · " in joulewise("show", WHOLE).stdout
        whole, lost = joulewise("ls").stdout.splitlines()[1:]
        assert "energy incomplete" in lost
        assert "energy in part" not in whole
        states = [run["state"] for run in json.loads(joulewise("ls", "--json", "-").stdout)["runs"]]
        assert states == ["complete", "complete"]

    def test_a_whole_run_is_no_bound(self, joulewise):
        assert "at least" not in joulewise("show", WHOLE).stdout.lower()

    def test_json(self, joulewise):
        payload = json.loads(joulewise("show", LOST, "--json", "-").stdout)["energy_j"]
        assert [payload[key]["at_least"] for key in ("total", "gpu0", "cpu0")] == [
            True,
            True,
            False,
        ]

    def test_cost_and_carbon_are_bounds_too(self, joulewise):
        output = joulewise("show", LOST, "--price-per-kwh", "0.3", "--gco2-per-kwh", "400").stdout
        assert re.search(r"cost: at least \S+ ± \S+ % at 0.3", output)
        assert re.search(r"emissions: at least \S+ ± \S+ % g", output)

    def test_ls(self, joulewise):
        whole, lost = joulewise("ls").stdout.splitlines()[1:]
        assert "at least" not in whole
        assert bound_j(lost) == pytest.approx(1000, rel=0.05)
        assert "±" in lost

    @pytest.mark.parametrize(
        ("terms", "found"),
        [
            ("energy>500J", [WHOLE, LOST]),
            ("energy>=500J", [WHOLE, LOST]),
            ("energy>1.5kJ", [WHOLE]),  # it may be more, and may not
            ("energy<3kJ", [WHOLE]),
            ("energy<=10MJ", [WHOLE]),
            ("energy!=500J", [WHOLE, LOST]),
            ("energy!=1.5kJ", [WHOLE]),
            ("time<1min", [WHOLE, LOST]),
        ],
    )
    def test_filters_let_through_what_is_surely_so(self, joulewise, terms, found):
        ran = joulewise("ls", "--filter", terms, "--json", "-")
        assert [run["id"] for run in json.loads(ran.stdout)["runs"]] == found

    def test_a_comparison_has_no_verdict_on_energy_and_shows_why(self, joulewise):
        payload = json.loads(joulewise("compare", WHOLE, LOST, "--json", "-").stdout)
        by_name = {it["quantity"]: it for it in payload["quantities"]}
        for quantity in ("energy", "power", "edp"):
            assert by_name[quantity]["verdict"] == "not comparable"
            assert by_name[quantity]["reason"] == "the energy of B is a lower bound"
        assert by_name["time"]["ratio"] is not None
        assert "energy_at_least" in [it["code"] for it in payload["cautions"]]
        assert "the energy of B is a lower bound" in payload["finding"]

    def test_a_condition_on_it_cannot_be_passed(self, joulewise):
        ran = joulewise("compare", WHOLE, LOST, "--fail-if", "energy>+5%")
        assert ran.returncode == 2
        assert "lower bound" in ran.stderr

    def test_the_report_and_its_tables(self, joulewise, tmp_path):
        page, tables = tmp_path / "r.html", tmp_path / "tables"
        joulewise("report", LOST, "-o", str(page), "--tables", str(tables))
        (verdict,) = re.findall(r'id="verdict"[^>]*>(.*?)</p>', page.read_text(), re.DOTALL)
        assert verdict.startswith("At least ")
        rows = list(csv.DictReader(io.StringIO((tables / "energy-by-device.csv").read_text())))
        assert {row["device"]: row["at_least"] for row in rows} == {
            "gpu0": "1",
            "gpu1": "0",
            "cpu0": "0",
        }
        latex = (tables / "energy-by-device.tex").read_text()
        assert re.search(r"total & at least \S+ k?J & \$\\pm\$ \S+ \\% &", latex)

    def test_figures_do_not_pass_a_part_for_the_whole(self, joulewise, tmp_path):
        joulewise("report", LOST, "--figures", str(tmp_path), "--format", "json")
        titles = {
            path.stem: " ".join(json.loads(path.read_text())["title"]["text"])
            for path in tmp_path.glob("*.json")
        }
        assert titles["power"].startswith("Power is incomplete: gpu0 ")
        assert titles["breakdown"].startswith("At least ")
        assert "energy" not in titles

    def test_exported_spans(self, joulewise):
        text = joulewise("export", LOST, "--what", "spans", "-o", "-").stdout
        rows = csv.DictReader(io.StringIO(text))
        assert [row["at_least"] for row in rows] == ["true", "true"]


def limit(watts):
    return Setting.of({POWER_LIMIT: float(watts)})


def trial(watts, block, energy_j, *, is_bound=False):
    joules = Energy(energy_j, 1.0, 1.0, Source.MEASURED, at_least=is_bound)
    return Trial(
        limit(watts),
        block,
        TrialState.DONE,
        gpu="uid",
        time_s=100.0,
        energy={} if is_bound else {"gpu": joules},
        bounds={"gpu": joules} if is_bound else {},
    )


@pytest.fixture
def swept(store):
    """At 150 W the GPU was lost in every run: its bound is below all others."""
    trials = [trial(300, block, 30_000 + block) for block in range(3)]
    trials += [trial(200, block, 25_000 + block) for block in range(3)]
    trials += [trial(150, block, 4_000, is_bound=True) for block in range(3)]
    settings = tuple(map(limit, (150, 200, 300)))
    sweep = Sweep("20261116-003512-cccc", {}, 0, limit(300), settings, tuple(trials), "lossy")
    folder = store / "sweeps" / sweep.id
    folder.mkdir(parents=True)
    (folder / SWEEP_FILE).write_text(as_text(sweep))


@pytest.mark.usefixtures("swept")
class TestSweeps:
    def test_a_setting_of_bounds_is_not_recommended_and_that_is_shown(self, joulewise):
        payload = json.loads(joulewise("choose", "lossy", "--by", "energy", "--json", "-").stdout)
        assert payload["best"]["energy"]["settings"] == {"power_limit_w": 200.0}
        points = {it["settings"]["power_limit_w"]: it for it in payload["points"]}
        assert points[150.0]["energy_j"] is None
        (caution,) = [it for it in payload["cautions"] if it["code"] == "energy_at_least"]
        assert "150 W" in caution["message"]
        assert "3 runs" in caution["message"]

    def test_comparing_sweeps_shows_it(self, joulewise, tmp_path):
        table = tmp_path / "elsewhere.csv"
        table.write_text(
            "power_limit_w,time_s,energy_j\n"
            + "".join(f"{w},100,{w * 90.0}\n" for w in (150, 200, 300) for _ in "ab")
        )
        payload = json.loads(joulewise("compare", str(table), "lossy", "--json", "-").stdout)
        assert "energy_at_least" in [it["code"] for it in payload["cautions"]]
        by_limit = {
            it["settings"]["power_limit_w"]: it["quantities"][0] for it in payload["settings"]
        }
        assert by_limit[150.0]["verdict"] == "not comparable"
        assert by_limit[200.0]["ratio"] is not None

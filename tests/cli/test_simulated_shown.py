"""What was made on simulated devices says so, wherever it is shown or written."""

import csv
import io
import json
import re

import pytest

from joulewise.data import Source

REAL, SIMULATED, TWIN = (f"20261116-00351{i}-aaaa" for i in range(3))
PHRASE = "GPU simulated"
SWEEP = (
    *("sweep", "--sim", "v100", "--workload", "ecg", "--power-limit", "150,300"),
    *("--repeat", "2", "--seed", "1", "--name", "virtual"),
)


@pytest.fixture
def runs(make_run):
    make_run(REAL, name="real")
    make_run(SIMULATED, name="virtual", source=Source.SIMULATED)
    make_run(TWIN, name="twin", source=Source.SIMULATED)


@pytest.fixture
def sweep(joulewise):
    assert joulewise(*SWEEP).returncode == 0


@pytest.mark.usefixtures("runs")
class TestRuns:
    def test_the_headline_and_the_table_say_it(self, joulewise):
        output = joulewise("show", SIMULATED).stdout
        assert re.search(r"^\S+ kJ ± .* in 10.0 s, GPU simulated: ", output, re.MULTILINE)
        assert re.search(r"gpu0 .* simulated \(counter\)\n", output)
        assert re.search(r"total .* simulated, modelled\n", output)

    def test_a_real_run_has_nothing_of_it(self, joulewise):
        assert "simulated" not in joulewise("show", REAL).stdout

    def test_json_names_the_devices(self, joulewise):
        payload = json.loads(joulewise("show", SIMULATED, "--json", "-").stdout)
        assert payload["simulated"] == ["gpu0", "gpu1"]
        assert payload["energy_j"]["gpu0"]["source"] == "simulated"
        assert set(payload["details"]["devices"]["gpu0"]["sources"].values()) == {"simulated"}
        assert json.loads(joulewise("show", REAL, "--json", "-").stdout)["simulated"] == []

    def test_ls_marks_it(self, joulewise):
        header, real, simulated, _ = joulewise("ls").stdout.splitlines()
        assert "source" in header
        assert " GPU simulated, others not " in simulated
        assert "simulated" not in real
        (of_real, of_simulated, _) = json.loads(joulewise("ls", "--json", "-").stdout)["runs"]
        assert (of_real["simulated"], of_simulated["simulated"]) == ([], ["gpu0", "gpu1"])

    @pytest.mark.parametrize(
        ("what", "sources"),
        [
            ("trace", {"gpu0": "simulated", "cpu0": "modelled"}),
            ("sensors", {"gpu0": "simulated"}),
            ("spans", {"": "mixed"}),
            ("span-devices", {"gpu0": "simulated", "cpu0": "modelled"}),
        ],
    )
    def test_every_exported_table_has_a_source(self, joulewise, what, sources):
        text = joulewise("export", SIMULATED, "--what", what, "-o", "-").stdout
        result = {row.get("device", ""): row["source"] for row in csv.DictReader(io.StringIO(text))}
        assert result | sources == result

    def test_a_comparison_with_a_real_run_warns(self, joulewise):
        payload = json.loads(joulewise("compare", REAL, SIMULATED, "--json", "-").stdout)
        assert "simulated_with_real" in [it["code"] for it in payload["cautions"]]
        assert payload["finding"].endswith("(A real, B simulated)")
        assert (payload["a"]["simulated"], payload["b"]["simulated"]) == ([], ["gpu0"])
        energy = next(it for it in payload["quantities"] if it["quantity"] == "energy")
        assert energy["ratio"] is not None

    def test_a_comparison_of_two_simulated_runs_shows_it_without_a_warning(self, joulewise):
        payload = json.loads(joulewise("compare", SIMULATED, TWIN, "--json", "-").stdout)
        assert "simulated_with_real" not in [it["code"] for it in payload["cautions"]]
        assert payload["finding"].endswith("(simulated)")

    def test_the_report_and_all_that_is_written_with_it(self, joulewise, tmp_path):
        page, figures, tables = tmp_path / "r.html", tmp_path / "figures", tmp_path / "tables"
        forms = "svg,json,csv,html"
        for theme in ("light", "print"):
            ran = joulewise(
                *("report", SIMULATED, "-o", str(page), "--figures", str(figures / theme)),
                *("--format", forms, "--theme", theme, "--tables", str(tables), "--force"),
            )
            assert ran.returncode == 0, ran.stderr
        text = page.read_text("utf-8")
        (verdict,) = re.findall(r'id="verdict"[^>]*>(.*?)</p>', text, re.DOTALL)
        assert PHRASE in verdict
        captions = re.findall(r"<figcaption>(.*?)</figcaption>", text, re.DOTALL)
        assert captions
        assert all(PHRASE in caption for caption in captions)
        every = [*figures.rglob("*.*"), *tables.glob("*.*")]
        assert len({path.suffix for path in every}) == 6  # svg json csv html md tex
        silent = [path for path in every if "simulated" not in path.read_text("utf-8")]
        assert silent == []

    def test_inside_a_drawn_figure_it_can_be_seen(self, joulewise, tmp_path):
        joulewise("report", SIMULATED, "--figures", str(tmp_path), "--theme", "print")
        for path in tmp_path.glob("*.svg"):
            drawn = re.findall(r"<text[^>]*>([^<]*)</text>", path.read_text("utf-8"))
            assert PHRASE in drawn, path.name


@pytest.mark.usefixtures("sweep")
class TestSweeps:
    def test_choose_shows_it_in_title_sources_tables_and_findings(self, joulewise):
        output = joulewise("choose", "virtual").stdout
        title, *_ = output.splitlines()
        assert title.endswith(PHRASE)
        assert "System boundary: GPU (simulated)" in output
        assert f"Best setting per objective ({PHRASE})" in output
        assert "GPU measured" not in output
        findings = [line for line in output.splitlines() if " takes " in line and " than " in line]
        assert findings
        assert all(line.endswith(f"({PHRASE})") for line in findings)

    def test_choose_as_a_table(self, joulewise):
        latex = joulewise("choose", "virtual", "--format", "latex").stdout
        assert rf"\caption{{Best setting per objective ({PHRASE})}}" in latex
        rows = list(
            csv.DictReader(io.StringIO(joulewise("choose", "virtual", "--format", "csv").stdout))
        )
        assert {row["source"] for row in rows} == {PHRASE}

    def test_json(self, joulewise):
        payload = json.loads(joulewise("choose", "virtual", "--json", "-").stdout)
        assert payload["simulated"] == ["gpu"]
        assert payload["sources"]["gpu"] == PHRASE
        (listed,) = json.loads(joulewise("choose", "--json", "-").stdout)["sweeps"]
        assert listed["simulated"] is True

    def test_the_report(self, joulewise, tmp_path):
        page = tmp_path / "sweep.html"
        joulewise("report", "virtual", "-o", str(page), "--figures", str(tmp_path / "figures"))
        text = page.read_text("utf-8")
        (verdict,) = re.findall(r'id="verdict"[^>]*>(.*?)</p>', text, re.DOTALL)
        assert PHRASE in verdict
        figures = list((tmp_path / "figures").glob("*.svg"))
        assert figures
        assert all(PHRASE in path.read_text("utf-8") for path in figures)

    def test_a_sweep_from_elsewhere_is_compared_with_a_warning(self, joulewise, tmp_path):
        table = tmp_path / "elsewhere.csv"
        table.write_text(
            "power_limit_w,time_s,energy_j\n"
            + "".join(f"{w},{100 + (300 - w) / 3},{w * 90.0}\n" for w in (150, 300) for _ in "ab")
        )
        payload = json.loads(joulewise("compare", str(table), "virtual", "--json", "-").stdout)
        assert "simulated_with_real" in [it["code"] for it in payload["cautions"]]
        assert payload["settings"][0]["quantities"][0]["ratio"] is not None

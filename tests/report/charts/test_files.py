import json
import pwd
import re
import struct
import subprocess
import sys

import pytest

from joulewise.errors import JoulewiseError, UsageError
from joulewise.report.charts import files
from joulewise.report.charts.files import FORMATS, write_chart
from joulewise.report.charts.sweep import chart_sweep
from joulewise.report.tables import as_csv
from tests.helpers.table_sweeps import by_batch, by_limit, chart, swept


@pytest.fixture
def figure(tmp_path):
    return chart(chart_sweep(*swept(tmp_path, by_limit()), None), "energy-by-limit")


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    files.javascript_bundle.cache_clear()
    yield
    files.javascript_bundle.cache_clear()


@pytest.fixture
def making(monkeypatch):
    """Counts how often the script is put together."""
    import vl_convert

    made = []

    def make(snippet, version):
        made.append(version)
        return f"{snippet} '</script>'"

    monkeypatch.setattr(vl_convert, "javascript_bundle", make)
    return made


def test_a_chart_is_written_in_every_format(figure, tmp_path):
    for form in FORMATS:
        write_chart(figure, tmp_path / f"figure{form}")
    assert (tmp_path / "figure.pdf").read_bytes().startswith(b"%PDF-")
    svg = (tmp_path / "figure.svg").read_text("utf-8")
    assert f"<title>{figure.title}</title><desc>{figure.description}</desc>" in svg
    assert svg.rstrip().endswith("</svg>")
    spec = json.loads((tmp_path / "figure.json").read_text("utf-8"))
    assert "vega-lite" in spec["$schema"]
    assert spec["datasets"]["means"] == [dict(it) for it in figure.table.records]
    assert (tmp_path / "figure.csv").read_text("utf-8") == as_csv(figure.table)
    html = (tmp_path / "figure.html").read_text("utf-8")
    assert "vegaEmbed" in html
    assert len(html) > 500_000  # what draws it is in it
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", html)


def test_a_png_has_twice_the_pixels_of_a_screen_and_more_in_print(figure, tmp_path):
    def wide(theme):
        write_chart(figure, tmp_path / "figure.png", theme)
        return struct.unpack(">I", (tmp_path / "figure.png").read_bytes()[16:20])[0]

    assert wide("light") == 2 * 680
    assert wide("print") == pytest.approx(85 / 25.4 * 600, abs=8)


@pytest.mark.parametrize("width_mm", [85.0, 178.0])
def test_a_printed_figure_has_the_width_of_a_column_and_no_title(figure, tmp_path, width_mm):
    write_chart(figure, tmp_path / "figure.pdf", "print", width_mm=width_mm)
    write_chart(figure, tmp_path / "figure.svg", "print", width_mm=width_mm)
    page = re.search(rb"MediaBox \[0 0 ([\d.]+)", (tmp_path / "figure.pdf").read_bytes())
    assert float(page[1]) == pytest.approx(width_mm / 25.4 * 72, abs=1)
    svg = (tmp_path / "figure.svg").read_text("utf-8")
    assert float(re.search(r'width="([\d.]+)pt"', svg)[1]) == pytest.approx(float(page[1]), abs=1)
    assert re.search(r'<svg [^>]* height="[\d.]+pt"', svg)
    assert "Quadratic fit of energy" not in re.sub("<(title|desc)>.*?</", "", svg)


def test_hostile_names_are_escaped_in_every_format(tmp_path, making):
    hostile = ("</script><img src=x>", "=cmd()", "32")
    rows = by_batch(hostile)
    heat = chart(chart_sweep(*swept(tmp_path, rows, {"batch_size": "32"}), None), "heat-energy")
    write_chart(heat, tmp_path / "figure.svg")
    write_chart(heat, tmp_path / "figure.html")
    write_chart(heat, tmp_path / "figure.csv")
    assert "<img" not in (tmp_path / "figure.svg").read_text("utf-8")
    html = (tmp_path / "figure.html").read_text("utf-8")
    assert "<img" not in html
    assert html.lower().count("</script") == 2
    assert "'=cmd()" in (tmp_path / "figure.csv").read_text("utf-8")
    assert len(making) == 1


def test_an_unknown_suffix_is_refused(figure, tmp_path):
    with pytest.raises(UsageError, match="has no suffix of a figure"):
        write_chart(figure, tmp_path / "figure.gif")
    with pytest.raises(JoulewiseError, match="cannot write"):
        write_chart(figure, tmp_path / "nowhere" / "figure.csv")


@pytest.mark.parametrize("missing", ["altair", "vl_convert"])
def test_a_missing_extra_names_the_install_command(figure, tmp_path, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    for form in (".svg", ".html"):
        with pytest.raises(JoulewiseError, match="figures need altair and vl-convert") as error:
            write_chart(figure, tmp_path / f"figure{form}")
        assert error.value.hint == "pip install 'joulewise[report]'"


def test_the_javascript_bundle_is_cached(making, tmp_path):
    first = files.javascript_bundle()
    files.javascript_bundle.cache_clear()
    assert files.javascript_bundle() == first
    assert len(making) == 1
    assert "</script" not in first
    cached = list((tmp_path / "cache" / "joulewise").iterdir())
    assert [path.suffix for path in cached] == [".js"]


def test_a_cached_bundle_of_another_version_is_ignored(making, monkeypatch):
    files.javascript_bundle()
    files.javascript_bundle.cache_clear()
    monkeypatch.setattr(files, "version", lambda _name: "0.0")
    files.javascript_bundle()
    assert len(making) == 2


def test_without_a_cache_the_bundle_is_built_anew(making, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert files.javascript_bundle()
    files.javascript_bundle.cache_clear()
    assert files.javascript_bundle()
    assert len(making) == 2


def test_a_relative_cache_folder_is_ignored(making, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    files.javascript_bundle()
    assert not (tmp_path / "here").exists()
    assert list((tmp_path / ".cache" / "joulewise").iterdir())
    assert making


def test_a_user_without_a_home_gets_figures(making, monkeypatch):
    def unknown(_uid):
        raise KeyError

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert files.javascript_bundle()
    assert making


def test_importing_altair_needs_no_home():
    """In a process of its own: altair looks for a home only when it is imported."""
    code = """
import os, pwd
from joulewise.report.charts.chart import Chart

def unknown(_uid):
    raise KeyError

def drawing():
    import altair as alt
    return alt.Chart(alt.NamedData("rows")).mark_bar()

os.environ.pop("HOME", None)
pwd.getpwuid = unknown
print(Chart("key", "title", "description", {}, drawing).spec()["mark"]["type"])
assert "HOME" not in os.environ
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "bar\n", done.stderr


def test_an_empty_cached_bundle_is_built_anew(making, tmp_path):
    first = files.javascript_bundle()
    files.javascript_bundle.cache_clear()
    (cached,) = (tmp_path / "cache" / "joulewise").iterdir()
    cached.write_bytes(b"")
    assert files.javascript_bundle() == first
    assert cached.read_text("utf-8") == first
    assert len(making) == 2

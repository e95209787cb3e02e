"""One table in every form; what comes from elsewhere stays text in all of them."""

import csv
import io
import json

import pytest
from rich.console import Console

from joulewise.report.tables import (
    FORMS,
    Column,
    Table,
    as_csv,
    as_json,
    as_latex,
    as_markdown,
    drawn,
)

HOSTILE = [
    "=cmd()",
    "+1+1",
    "@SUM(A1)",
    "-2+3",
    "a|b",
    "{x}_y%",
    "**bold**",
    "[red]x[/red]",
    "a\\b",
]


def table(cells):
    return Table(
        "A & B",
        (Column("name", right=False), Column("energy", "J")),
        tuple((cell, None) for cell in cells),
        tuple({"name": cell, "energy_j": -1.5} for cell in cells),
    )


def test_csv_has_the_records_and_no_formula():
    rows = list(csv.DictReader(io.StringIO(as_csv(table(HOSTILE)))))
    assert [row["energy_j"] for row in rows] == ["-1.5"] * len(HOSTILE)
    assert [row["name"].lstrip("'") for row in rows] == HOSTILE
    assert not any(row["name"].startswith(("=", "+", "-", "@")) for row in rows)


def test_markdown_keeps_its_columns():
    lines = as_markdown(table(HOSTILE)).splitlines()
    assert lines[0] == "**A & B**"
    assert lines[3] == "| --- | ---: |"
    unescaped = [line.replace("\\|", "") for line in lines[2:]]
    assert {line.count("|") for line in unescaped} == {3}
    assert r"\*\*bold\*\*" in as_markdown(table(HOSTILE))


def test_latex_is_booktabs_with_its_signs_escaped():
    text = as_latex(table(HOSTILE))
    assert "\\begin{tabular}{lr}\n\\toprule\nname & energy (J) \\\\\n\\midrule\n" in text
    assert r"\caption{A \& B}" in text
    assert r"\{x\}\_y\% & - \\" in text
    assert r"a\textbackslash{}b" in text


def test_a_terminal_shows_markup_as_text():
    out = io.StringIO()
    Console(file=out, width=100).print(drawn(table(HOSTILE), "utf-8", 100)[0])
    assert all(cell in out.getvalue() for cell in HOSTILE)


@pytest.mark.parametrize("form", sorted({*FORMS} - {"csv", "json"}))
def test_a_table_without_rows_has_its_headings(form):
    assert "energy" in FORMS[form](table([]))


def test_json_has_the_records_as_they_are():
    told = json.loads(as_json(table([*HOSTILE, "</script>"])))
    assert [record["name"] for record in told] == [*HOSTILE, "</script>"]
    assert {record["energy_j"] for record in told} == {-1.5}
    assert json.loads(as_json(table([]))) == []


def test_json_has_null_for_what_is_no_number():
    one = Table("", (), (), ({"energy_j": float("nan"), "time_s": float("inf")},))
    assert json.loads(as_json(one)) == [{"energy_j": None, "time_s": None}]


def test_what_has_no_room_is_left_out_as_a_whole():
    columns = (Column("a"), Column("the energy", "J", spare=2), Column("b", spare=1))
    one = Table("", columns, (("1", "12345 ± 1", "22222"),))
    for width, left_out in ((40, []), (20, []), (19, ["the energy"]), (7, ["the energy", "b"])):
        grid, titles = drawn(one, "utf-8", width)
        assert titles == left_out
        out = io.StringIO()
        Console(file=out, width=width).print(grid)
        assert ("12345 ± 1" in out.getvalue()) is ("the energy" not in left_out)
        assert max(map(len, out.getvalue().splitlines())) <= width


def test_columns_that_belong_together_go_together():
    columns = (Column("a"), Column("error", spare=2), Column("b"), Column("error", spare=2))
    one = Table("", columns, (("1", "± 1 %", "2", "± 2 %"),))
    assert drawn(one, "utf-8", 12)[1] == ["error", "error"]

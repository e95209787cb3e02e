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
    file_name,
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
    assert r"\{x\}\_y\% & -- \\" in text
    assert r"a\textbackslash{}b" in text


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("-26.4 % ± 0.3", r"$-$26.4 \% $\pm$ 0.3"),
        ("-17.1 % [-24.8, +13.0]", r"$-$17.1 \% [$-$24.8, +13.0]"),
        ("150-295 W", "150--295 W"),
        ("resnet-50", "resnet-50"),
        (None, "--"),
    ],
)
def test_figures_in_latex_have_the_signs_of_mathematics(cell, said):
    one = Table("T", (Column("name", right=False), Column("energy")), (("a-1", cell),))
    assert f"a-1 & {said} \\\\\n" in as_latex(one)


def test_latex_can_be_referred_to_by_the_name_of_its_file():
    assert r"\label{tab:a-b}" in as_latex(table([]))
    named = Table("A long title, as in the page", (), (), name="short")
    assert r"\label{tab:short}" in as_latex(named)


def test_latex_has_as_many_columns_as_a_page_has_room_for():
    columns = (Column("a", right=False), *(Column(f"b{at}", spare=at) for at in range(1, 5)))
    text = as_latex(Table("T", columns, (("a", *("x" * 25,) * 4),)))
    assert r"\begin{tabular}{lrrr}" in text
    assert text.startswith("% left out for width: b4\n")
    assert {line.count("&") for line in text.splitlines() if line.endswith(r"\\")} == {3}


def test_a_row_of_latex_does_not_begin_as_an_argument():
    one = Table("T", (Column("name", right=False),), (("a",), ("[red]",)))
    assert "\n{[}red] " in as_latex(one)


def test_a_long_title_is_a_file_name_of_whole_words():
    title = "the same choice for what else is counted, and what would be chosen there"
    assert file_name(title) == title.replace(",", "").replace(" ", "-")
    longer = file_name("word " * 60)
    assert len(longer) <= 120
    assert set(longer.split("-")) == {"word"}


def test_a_terminal_shows_markup_as_text():
    out = io.StringIO()
    Console(file=out, width=100).print(drawn(table(HOSTILE), "utf-8", 100)[0])
    assert all(cell in out.getvalue() for cell in HOSTILE)


@pytest.mark.parametrize("form", sorted({*FORMS} - {"csv", "json"}))
def test_a_table_without_rows_has_its_headings(form):
    assert "energy" in FORMS[form](table([]))


def test_json_has_the_records_as_they_are():
    payload = json.loads(as_json(table([*HOSTILE, "</script>"])))
    assert [record["name"] for record in payload] == [*HOSTILE, "</script>"]
    assert {record["energy_j"] for record in payload} == {-1.5}
    assert json.loads(as_json(table([]))) == []


def test_json_has_null_for_what_is_no_number():
    one = Table("", (), (), ({"energy_j": float("nan"), "time_s": float("inf")},))
    assert json.loads(as_json(one)) == [{"energy_j": None, "time_s": None}]


def printed(grids, width):
    out = io.StringIO()
    for grid in grids:
        Console(file=out, width=width).print(grid)
    return out.getvalue()


@pytest.mark.parametrize(("width", "blocks"), [(40, 1), (20, 1), (19, 2), (13, 2)])
def test_what_has_no_room_stands_below_and_nothing_is_left_out(width, blocks):
    columns = (Column("a"), Column("the energy", "J", spare=2), Column("b", spare=1))
    one = Table("", columns, (("1", "12345 ± 1", "22222"),))
    grids = drawn(one, "utf-8", width)
    assert len(grids) == blocks
    assert [str(grid.columns[0].header) for grid in grids] == ["a"] * blocks
    shown = printed(grids, width)
    assert "12345 ± 1" in shown
    assert "22222" in shown
    assert max(map(len, shown.splitlines())) <= width


def test_the_columns_that_name_a_row_are_in_every_block():
    columns = tuple(Column(name) for name in ("limit", "batch", "energy", "time"))
    one = Table("", columns, (("150 W", "32", "1.00 kJ", "10.0 s"),), keys=2)
    blocks = [[str(column.header) for column in grid.columns] for grid in drawn(one, "utf-8", 22)]
    assert blocks == [["limit", "batch", "energy"], ["limit", "batch", "time"]]


def test_columns_that_belong_together_go_together():
    columns = (Column("a"), Column("error", spare=2), Column("b"), Column("error", spare=2))
    one = Table("", columns, (("1", "± 1 %", "2", "± 2 %"),))
    blocks = [[str(column.header) for column in grid.columns] for grid in drawn(one, "utf-8", 15)]
    assert blocks == [["a", "b"], ["a", "error", "error"]]

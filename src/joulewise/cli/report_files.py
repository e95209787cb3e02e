"""What the verbs that write reports share: options for their files, and writing them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from joulewise.cli.options import Number, all_options, number_option
from joulewise.cli.output import STDOUT, say, write_json
from joulewise.errors import UsageError
from joulewise.store.files import is_folder

if TYPE_CHECKING:
    from joulewise.report.charts.theme import Theme
    from joulewise.report.html.render import HtmlPage

FORMATS = ("svg", "pdf", "png", "html", "json", "csv")


report_options = all_options(
    click.option(
        "-o",
        "--output",
        "output",
        metavar="PATH|DIR/",
        help="Write the report to PATH or into DIR/; - is stdout. [default: joulewise-ID.html]",
    ),
    click.option(
        "--force", is_flag=True, help="Replace PATH even if it is not a report of joulewise."
    ),
    click.option(
        "--figures",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Write each figure as a file into DIR.",
    ),
    click.option(
        "--format",
        "forms",
        default="svg",
        show_default=True,
        metavar="FORM,...",
        help=f"Formats of the figures: {', '.join(FORMATS)}.",
    ),
    click.option(
        "--theme",
        type=click.Choice(["light", "dark", "print"]),
        default="light",
        show_default=True,
        help="Theme of the figures; print is for papers and has no title.",
    ),
    number_option(
        "--width-mm",
        Number(min=30, max=500),
        metavar="MM",
        help="Width of figures for print in mm. [default: 85, one column]",
    ),
    click.option(
        "--tables",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Write the tables as CSV, Markdown and LaTeX (booktabs) into DIR.",
    ),
)
"""``-o``, ``--force``, ``--tables``, and ``--figures`` with their form."""


def write_reports(
    which: Sequence[str],
    make_page: Callable[[str], tuple[str, HtmlPage]],
    output: str | None,
    json_path: str | None,
    given: Mapping[str, Any],
) -> None:
    """Write the report on each word, or only its figures, tables or JSON.

    ``make_page`` returns the name of its file and the page; ``given`` are the options by name.
    """
    _check_figure_options(given)
    wants_page = output is not None or not (given["figures"] or given["tables"] or json_path)
    forms = _parse_formats(given["forms"])
    if len(which) > 1 and output and not _is_folder(output):
        raise UsageError(
            f"{len(which)} reports cannot be written to one file: {output}", "give -o a folder/"
        )
    from joulewise.report.html.render import require_extra

    if wants_page or given["figures"]:
        require_extra()
    data = []
    for word in which:
        name, page = make_page(word)
        data.append(page.data)
        if wants_page:
            _write(page, name, output, force=given["force"])
        own = Path(name) if len(which) > 1 else Path()
        if given["figures"]:
            _write_figures(page, given["figures"] / own, forms, given)
        if given["tables"]:
            _write_tables(page, given["tables"] / own)
    if json_path:
        write_json(dict(data[0]) if len(data) == 1 else {"reports": data}, json_path)


def _check_figure_options(given: Mapping[str, Any]) -> None:
    """Raise where an option of figures has no effect without --figures."""
    context = click.get_current_context()
    for name, option in (("forms", "--format"), ("theme", "--theme"), ("width_mm", "--width-mm")):
        typed = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if typed and not given["figures"]:
            raise UsageError(f"{option} needs --figures", "add --figures DIR")
    if given["width_mm"] and given["theme"] != "print":
        raise UsageError("--width-mm needs --theme print", "add --theme print")


def _parse_formats(text: str) -> list[str]:
    forms = [form.strip().lower().lstrip(".") for form in text.split(",")]
    for form in forms:
        if form not in FORMATS:
            raise UsageError(
                f"figure format must be one of {', '.join(FORMATS)}, not {form!r}",
                "give --format one or several of them, separated by commas",
            )
    return forms


def _is_folder(output: str) -> bool:
    return output.endswith("/") or is_folder(output)


def _write(page: HtmlPage, name: str, output: str | None, *, force: bool) -> None:
    from joulewise.report.html.render import default_name, write_page

    if output == STDOUT:
        from joulewise.report.html.render import render

        click.echo(render(page), nl=False)
        return
    path = Path(output or default_name(name))
    if output and _is_folder(output):
        _make_folder(path, "-o")
        path /= default_name(name)
    write_page(page, path, force=force)
    say(f"wrote {path}: open it in a browser")


def _make_folder(folder: Path, option: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot create {folder}: {error.strerror}", f"give {option} another folder"
        ) from None


def _write_figures(
    page: HtmlPage, folder: Path, forms: Sequence[str], given: Mapping[str, Any]
) -> None:
    from joulewise.report.charts.files import write_chart
    from joulewise.report.charts.theme import COLUMN_MM
    from joulewise.report.tables import file_name

    theme: Theme = given["theme"]
    _make_folder(folder, "--figures")
    charts = [chart for section in page.sections for chart in section.charts]
    for chart in charts:
        for form in forms:
            path = folder / f"{file_name(chart.key)}.{form}"
            write_chart(chart, path, theme, width_mm=given["width_mm"] or COLUMN_MM)
    say(f"wrote {len(charts)} figures as {', '.join(forms)} to {folder}")


def _write_tables(page: HtmlPage, folder: Path) -> None:
    from joulewise.report.html.render import written_tables
    from joulewise.report.tables import write_tables

    files = list(write_tables(written_tables(page), folder))
    say(f"wrote {len({path.stem for path in files})} tables in {len(files)} files to {folder}")

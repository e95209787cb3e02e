"""A page as one HTML file that asks the network for nothing.

The data of a page, each table once, and the figures that are drawn from it.

What a page says, in the order in which it is read; ``render`` makes it HTML.

What the tables of a page are called as files.

A page as a file, which never takes the place of something else.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from joulewise.data.codec import finite
from joulewise.errors import JoulewiseError, UsageError
from joulewise.formatting import keep_together, plain
from joulewise.report.charts.chart import Chart
from joulewise.report.export import no_folder, unwritten
from joulewise.report.tables import Table, file_name
from joulewise.store.files import is_folder, open_regular, path_exists, replace_file


@dataclass(frozen=True)
class Notice:
    """Something to beware of, and what to do about it."""

    message: str
    hint: str = ""


@dataclass(frozen=True)
class Section:
    """A heading, sentences, tables, figures; what is empty is left out.

    ``folded`` is what opens only on request, such as every single setting. ``written`` says whether
    ``--tables`` writes its tables: those of what was found, not of how well it was measured.
    """

    title: str
    sentences: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    charts: tuple[Chart, ...] = ()
    folded: bool = False
    written: bool = True


@dataclass(frozen=True)
class HtmlPage:
    """``verdict`` answers the question in one sentence.

    ``commands`` are pairs of what to type and what it does, the one that repeats this first;
    ``environment`` are facts by name; ``data`` is the result as ``--json`` writes it.
    """

    title: str
    verdict: str
    facts: tuple[str, ...]
    notices: tuple[Notice, ...]
    sections: tuple[Section, ...]
    environment: Mapping[str, str]
    commands: tuple[tuple[str, str], ...]
    data: Mapping[str, Any]


def named_tables(page: HtmlPage) -> dict[str, Table]:
    """Each table once, in the order of the page: by its title, or by the figure that shows it."""
    found: dict[str, Table] = {}
    seen: set[int] = set()
    for wish, table in _wishes(page):
        if id(table) in seen:
            continue
        seen.add(id(table))
        names = (wish, *(f"{wish}-{number}" for number in range(2, len(seen) + 1)))
        found[next(name for name in names if name not in found)] = table
    return found


def written_tables(page: HtmlPage) -> dict[str, Table]:
    """Those that ``--tables`` writes: what the page found, without what its figures are drawn from.

    The numbers behind a figure are written with it: ``--figures DIR --format csv``.
    """
    wanted = {id(table) for it in page.sections if it.written for table in it.tables}
    return {name: table for name, table in named_tables(page).items() if id(table) in wanted}


def _wishes(page: HtmlPage) -> Iterator[tuple[str, Table]]:
    for section in page.sections:
        for table in section.tables:
            yield table.file_name, table
        for chart in section.charts:
            for at, (name, table) in enumerate(chart.tables.items()):
                yield file_name(f"{chart.key} {name}" if at else chart.key), table


THEMES: Final = ("light", "dark")
"""What a page is read in; it is printed in the first."""


@dataclass(frozen=True)
class EmbeddedChart:
    """A chart in its place on the page; ``problem`` is why it cannot be drawn."""

    chart: Chart
    id: str
    problem: str = ""


@dataclass
class Embedded:
    """What the page's script reads; ``numbers`` are those of tables, by which they are asked for.

    A table is columns and rows, which takes half the room of records. A theme's configuration is
    alike for nearly all figures, and kept once.
    """

    tables: list[dict[str, Any]] = field(default_factory=list)
    charts: dict[str, dict[str, Any]] = field(default_factory=dict)
    configs: list[dict[str, Any]] = field(default_factory=list)
    figures: list[EmbeddedChart] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)

    def as_json(self, page: HtmlPage) -> dict[str, Any]:
        return {
            "result": finite(page.data),
            "tables": self.tables,
            "charts": self.charts,
            "configs": self.configs,
        }


def embedded(page: HtmlPage) -> Embedded:
    made = Embedded()
    for name, table in named_tables(page).items():
        made.numbers[id(table)] = len(made.tables)
        made.tables.append(_columns(name, table))
    for section in page.sections:
        for chart in section.charts:
            made.figures.append(_figure(chart, made))
    return made


def _columns(name: str, table: Table) -> dict[str, Any]:
    names = list(dict.fromkeys(name for record in table.records for name in record))
    rows = [[record.get(name) for name in names] for record in table.records]
    told = {"title": table.caption, "file": name, "columns": names, "rows": finite(rows)}
    # Once for all rows: a figure may have thousands. The script puts it into each row of a CSV.
    return told if "source" in names else {**told, "source": table.provenance}


def _figure(chart: Chart, made: Embedded) -> EmbeddedChart:
    """One that fails is named in its place, and the others are drawn all the same."""
    number = len(made.figures) + 1
    id_ = f"figure-{number}"
    try:
        made.charts[id_] = _spec(chart, made)
    except Exception as error:  # noqa: BLE001  # whatever it is, the page is worth more
        return EmbeddedChart(chart, id_, plain(f"{type(error).__name__}: {error}"))
    return EmbeddedChart(chart, id_)


def _spec(chart: Chart, made: Embedded) -> dict[str, Any]:
    from joulewise.report.charts.theme import dressed

    spec = chart.spec()
    for name in ("$schema", "datasets"):
        spec.pop(name, None)
    themes = {theme: dressed(finite(spec), theme) for theme in THEMES}
    configs = {theme: drawn.pop("config", {}) for theme, drawn in themes.items()}
    return {
        "file": file_name(chart.key),
        "spec": themes["light"],
        "configs": {theme: _index(made.configs, config) for theme, config in configs.items()},
        "data": {name: made.numbers[id(table)] for name, table in chart.tables.items()},
    }


def _index(known: list[dict[str, Any]], one: Mapping[str, Any]) -> int:
    if one not in known:
        known.append(dict(one))
    return known.index(dict(one))


def named(figures: Iterable[EmbeddedChart]) -> dict[int, EmbeddedChart]:
    """By chart, as a template looks them up."""
    return {id(figure.chart): figure for figure in figures}


if TYPE_CHECKING:
    from jinja2 import Environment

GENERATOR: Final = "joulewise"
"""What the page names as its maker; a file that does is one of ours."""

# Vega would compile expressions with eval, which this forbids: page.js has it use the interpreter
# that Vega-Embed brings (`ast: true`). Scripts are named by their hashes, so that one that came in
# with somebody's run name would not be run even if it had escaped our escaping.
_POLICY: Final = (
    "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
_MOST_ROWS: Final = 200
"""Of a table on the page, whoever wants more wants its CSV."""


def render(page: HtmlPage, home: str = "") -> str:
    """``home`` is where the name of the program leads to, if the page is one of several."""
    from jinja2.utils import htmlsafe_json_dumps

    data = embedded(page)
    scripts = {name: source(f"{name}.js") for name in ("theme", "page")}
    if data.charts:
        from joulewise.report.charts.chart import bundle

        scripts["vega"] = bundle()
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts.values())
    template = environment(__package__).get_template("page.html")
    return template.render(
        page=page,
        home=home,
        generator=f"{GENERATOR} {version('joulewise')}",
        policy=_POLICY.format(scripts=hashes),
        style=source("page.css"),
        scripts=scripts,
        data=htmlsafe_json_dumps(
            data.as_json(page), allow_nan=False, separators=(",", ":"), ensure_ascii=False
        ),
        numbers=data.numbers,
        figures=named(data.figures),
        most_rows=_MOST_ROWS,
        unique=count(1).__next__,
        id=id,
    )


def source(name: str, package: str = __package__) -> str:
    """A style or script of a page."""
    return (files(package) / "templates" / name).read_text(encoding="utf-8")


@cache
def environment(package: str) -> Environment:
    """The templates of a package, in which nobody's text becomes HTML."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    made.filters["shown"] = _shown
    made.filters["together"] = _together
    return made


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _printable(value: Any) -> Any:
    """No control character of somebody's text, except where a line of it ends."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return "\n".join(map(plain, value.split("\n")))
    return value


def _together(text: str) -> Any:
    """With no-break spaces, which are no printable character, put in after the check for those."""
    from markupsafe import Markup, escape

    return Markup(keep_together(str(escape(_printable(text)))))  # noqa: S704  # it is escaped


def _shown(cell: str | None) -> str:
    return "–" if cell is None else cell  # noqa: RUF001  # a figure that there is not


_HEAD: Final = 4096
_MARK: Final = f'<meta name="generator" content="{GENERATOR} '.encode()
_NEEDED: Final = {"jinja2": "jinja2", "altair": "altair", "vl_convert": "vl-convert-python"}


def require_extra() -> None:
    """What pages and figures are made with, before any work is done for them."""
    missing = [name for module, name in _NEEDED.items() if find_spec(module) is None]
    if missing:
        raise JoulewiseError(
            f"reports and figures need {', '.join(missing)}, not installed here",
            "pip install 'joulewise[report]'",
        )


def write_page(page: HtmlPage, path: Path, *, force: bool = False) -> None:
    """As a whole or not at all; over an earlier report, and over nothing else unless forced."""
    check_place(path, force=force)
    text = render(page)
    try:
        replace_file(path, text, durable=False)
    except OSError as error:
        raise unwritten(path, error, "give a path that can be written") from None


def check_place(path: Path, *, force: bool) -> None:
    if is_folder(path):
        raise UsageError(f"{path} is a folder", "name a file in it")
    if not is_folder(path.parent):
        raise no_folder(path)
    if force or not path_exists(path) or _is_ours(path):
        return
    raise UsageError(f"{path} is there, and no report of joulewise", "name another, or add --force")


def default_name(word: str) -> str:
    return f"joulewise-{file_name(word)}.html"


def _is_ours(path: Path) -> bool:
    try:
        with open_regular(path) as file:
            head = file.read(_HEAD)
    except OSError:
        return False
    return _MARK in head or not head

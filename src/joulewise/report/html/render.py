"""``HtmlPage``: the content of a page, and how it becomes one HTML file that opens offline.

All numbers of a page are embedded in it once, as JSON: its script draws the figures from them and
offers each table as CSV. Nothing is loaded from the network.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from joulewise.data.codec import encode
from joulewise.errors import JoulewiseError, UsageError
from joulewise.formatting import keep_together, plain
from joulewise.report.charts.chart import Chart
from joulewise.report.export import no_folder, write_error
from joulewise.report.tables import Table, file_name
from joulewise.store.files import is_folder, open_regular, path_exists, replace_file

if TYPE_CHECKING:
    from jinja2 import Environment


@dataclass(frozen=True)
class Notice:
    """A warning, and what to do about it."""

    message: str
    hint: str = ""


@dataclass(frozen=True)
class Section:
    """A heading with sentences, tables and figures; parts that are empty are left out.

    ``folded`` sections open only on request, such as every single setting. ``written`` says whether
    ``--tables`` writes the tables: those of results, not those of how well they were measured.
    """

    title: str
    sentences: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    charts: tuple[Chart, ...] = ()
    folded: bool = False
    written: bool = True

    @property
    def has_content(self) -> bool:
        return bool(self.sentences or self.charts or any(table.rows for table in self.tables))


@dataclass(frozen=True)
class HtmlPage:
    """The content of a page.

    ``verdict`` is the finding in one sentence. ``commands`` are pairs of a command and what it
    does, first the one that repeats this result. ``environment`` are facts by name; ``data`` is
    the result as ``--json`` writes it.
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
    """Each table once, in the order of the page, by its name as a file."""
    tables: dict[str, Table] = {}
    seen: set[int] = set()
    for wanted, table in _tables_with_names(page):
        if id(table) in seen:
            continue
        seen.add(id(table))
        names = (wanted, *(f"{wanted}-{number}" for number in range(2, len(seen) + 1)))
        tables[next(name for name in names if name not in tables)] = table
    return tables


def written_tables(page: HtmlPage) -> dict[str, Table]:
    """The tables that ``--tables`` writes: results, without the data behind figures.

    Those are written with the figures: ``--figures DIR --format csv``.
    """
    wanted = {id(table) for section in page.sections if section.written for table in section.tables}
    return {name: table for name, table in named_tables(page).items() if id(table) in wanted}


def _tables_with_names(page: HtmlPage) -> Iterator[tuple[str, Table]]:
    """Named by their titles, or by the figures that show them; names may repeat."""
    for section in page.sections:
        for table in section.tables:
            yield table.file_name, table
        for chart in section.charts:
            for number, (name, table) in enumerate(chart.tables.items()):
                yield file_name(f"{chart.key} {name}" if number else chart.key), table


@dataclass(frozen=True)
class EmbeddedChart:
    """A chart and its element on the page; ``problem`` is why it cannot be drawn."""

    chart: Chart
    id: str
    problem: str = ""


@dataclass
class PageData:
    """What the page's script reads.

    A table is stored as columns and rows, which takes half the space of records. A theme's
    configuration is the same for nearly all figures, and stored once. ``numbers`` are the indices
    of tables, and ``figures`` the charts, both by the ``id()`` of the object.
    """

    tables: list[dict[str, Any]] = field(default_factory=list)
    charts: dict[str, dict[str, Any]] = field(default_factory=dict)
    configs: list[dict[str, Any]] = field(default_factory=list)
    figures: dict[int, EmbeddedChart] = field(default_factory=dict)
    numbers: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, page: HtmlPage) -> PageData:
        data = cls()
        for name, table in named_tables(page).items():
            data.numbers[id(table)] = len(data.tables)
            data.tables.append(_table_json(name, table))
        for section in page.sections:
            for chart in section.charts:
                data._add_chart(chart)
        return data

    def as_json(self, page: HtmlPage) -> dict[str, Any]:
        return {
            "result": encode(page.data),
            "tables": self.tables,
            "charts": self.charts,
            "configs": self.configs,
        }

    def _add_chart(self, chart: Chart) -> None:
        """A chart that fails is replaced by the reason, and the others are drawn all the same."""
        element, problem = f"figure-{len(self.figures) + 1}", ""
        try:
            self.charts[element] = self._chart_json(chart)
        except Exception as error:  # noqa: BLE001  # the rest of the page is shown in any case
            problem = plain(f"{type(error).__name__}: {error}")
        self.figures[id(chart)] = EmbeddedChart(chart, element, problem)

    def _chart_json(self, chart: Chart) -> dict[str, Any]:
        from joulewise.report.charts.theme import apply_theme

        spec = chart.spec()
        for name in ("$schema", "datasets"):
            spec.pop(name, None)
        light, dark = (apply_theme(encode(spec), theme) for theme in ("light", "dark"))
        configs = {"light": self._config_index(light.pop("config"))}
        configs["dark"] = self._config_index(dark["config"])
        return {
            "file": file_name(chart.key),
            "spec": light,
            "configs": configs,
            "data": {name: self.numbers[id(table)] for name, table in chart.tables.items()},
        }

    def _config_index(self, config: dict[str, Any]) -> int:
        if config not in self.configs:
            self.configs.append(config)
        return self.configs.index(config)


def _table_json(name: str, table: Table) -> dict[str, Any]:
    columns = list(dict.fromkeys(column for record in table.records for column in record))
    rows = [[record.get(column) for column in columns] for record in table.records]
    payload = {"title": table.caption, "file": name, "columns": columns, "rows": encode(rows)}
    # Once for all rows: a figure may have thousands. The script adds it to each row of a CSV.
    return payload if "source" in columns else {**payload, "source": table.provenance}


GENERATOR: Final = "joulewise"
"""What the page names as its generator, by which a report is recognised."""

# Vega would compile expressions with eval, which this forbids; page.js makes it use the interpreter
# of Vega-Embed (`ast: true`). Scripts are named by their hashes, so that one that came in with the
# name of a run would not be executed even if it was not escaped.
_POLICY: Final = (
    "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
_MAX_ROWS: Final = 200  # of a table on the page (chosen); its CSV has all of them
_HEAD_B: Final = 4096  # of a file, in which the generator is looked for; it is near the beginning
_MARK: Final = f'<meta name="generator" content="{GENERATOR} '.encode()
_NEEDED: Final = {"jinja2": "jinja2", "altair": "altair", "vl_convert": "vl-convert-python"}


def render(page: HtmlPage, home: str = "") -> str:
    """The page as HTML; ``home`` is the address of the list of runs, if the page is served."""
    from jinja2.utils import htmlsafe_json_dumps

    data = PageData.of(page)
    scripts = {name: source(f"{name}.js") for name in ("theme", "page")}
    if data.charts:
        from joulewise.report.charts.files import javascript_bundle

        scripts["vega"] = javascript_bundle()
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
        figures=data.figures,
        most_rows=_MAX_ROWS,
        # A table may stand twice on a page, in a section and below its figure, and each caption
        # needs an id of its own. Tables and charts are looked up by the identity of the object.
        unique=count(1).__next__,
        id=id,
    )


def source(name: str, package: str = __package__) -> str:
    """The text of a style sheet or script of a page."""
    return (files(package) / "templates" / name).read_text(encoding="utf-8")


@cache
def environment(package: str) -> Environment:
    """The templates of a package, with all inserted text escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    templates.filters["shown"] = _shown
    templates.filters["together"] = _together
    return templates


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _printable(value: Any) -> Any:
    """Text without control characters, except for line breaks."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return "\n".join(map(plain, value.split("\n")))
    return value


def _together(text: str) -> Any:
    """Text with no-break spaces between numbers and units, added after the check for printable."""
    from markupsafe import Markup, escape

    return Markup(keep_together(str(escape(_printable(text)))))  # noqa: S704  # escaped here


def _shown(cell: str | None) -> str:
    return "–" if cell is None else cell  # noqa: RUF001  # no value


def require_extra() -> None:
    """Raise JoulewiseError with the install command where a library for reports is missing."""
    missing = [name for module, name in _NEEDED.items() if find_spec(module) is None]
    if missing:
        raise JoulewiseError(
            f"reports and figures need {', '.join(missing)}, not installed here",
            "pip install 'joulewise[report]'",
        )


def write_page(page: HtmlPage, path: Path, *, force: bool = False) -> None:
    """Write the page atomically; ``force`` allows to replace a file that is not a report."""
    check_page_path(path, force=force)
    text = render(page)
    try:
        replace_file(path, text, durable=False)
    except OSError as error:
        raise write_error(path, error, "give a path that can be written") from None


def check_page_path(path: Path, *, force: bool) -> None:
    """Raise UsageError where a page cannot or must not be written."""
    if is_folder(path):
        raise UsageError(f"{path} is a folder", "name a file in it")
    if not is_folder(path.parent):
        raise no_folder(path)
    if force or not path_exists(path) or _is_report(path):
        return
    raise UsageError(
        f"{path} exists and is not a joulewise report", "name another file, or add --force"
    )


def default_name(word: str) -> str:
    return f"joulewise-{file_name(word)}.html"


def _is_report(path: Path) -> bool:
    try:
        with open_regular(path) as file:
            head = file.read(_HEAD_B)
    except OSError:
        return False
    return _MARK in head or not head  # an empty file, as mktemp makes it, is nobody's work

"""A figure: tables, and a drawing that takes all its numbers from their records.

The JavaScript that draws figures in a browser, made once and kept.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from joulewise.errors import JoulewiseError
from joulewise.report.tables import Table
from joulewise.store.files import replace_file

# Last, of a user that only a container's runtime knows of: there is no home.
_NOT_KEPT: Final = (OSError, UnicodeDecodeError, RuntimeError)


def converter() -> ModuleType:
    """vl-convert, which has a JavaScript engine and Vega in it."""
    try:
        with any_home():
            import altair as alt  # noqa: F401  # charts are written in its classes
        import vl_convert
    except ModuleNotFoundError:
        raise JoulewiseError(
            "figures need altair and vl-convert, which are not installed",
            "pip install 'joulewise[report]'",
        ) from None
    return vl_convert


@contextmanager
def any_home() -> Iterator[None]:
    """Set $HOME for a user who has none: altair looks it up on import, and fails without."""
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = "/nonexistent"  # as Debian has it; altair makes nothing there
        try:
            yield
        finally:
            del os.environ["HOME"]
    else:
        yield


@cache
def bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed for a ``<script>``, where ``vegaEmbed`` calls them.

    To make it takes two seconds: it is kept in the user's cache folder, if there is one.
    """
    making = converter()
    language = vega_lite()
    name = f"vega-{version('vl-convert-python')}-{language}.js"
    with suppress(*_NOT_KEPT):
        if known := (_folder() / name).read_text(encoding="utf-8"):
            return known
    made = making.javascript_bundle("window.vegaEmbed = vegaEmbed;", language)
    made = re.sub(r"</(?=script)", r"<\\/", made, flags=re.IGNORECASE)  # would end the element
    with suppress(*_NOT_KEPT):
        _folder().mkdir(parents=True, exist_ok=True)
        replace_file(_folder() / name, made, durable=False)
    return made


def vega_lite() -> str:
    """The version of Vega-Lite that figures are written for, as ``v6.4``."""
    import altair as alt

    return ".".join(alt.SCHEMA_VERSION.split(".")[:2])


def _folder() -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The specification says to ignore a path that is not absolute.
    return (home if home.is_absolute() else Path("~/.cache").expanduser()) / "joulewise"


if TYPE_CHECKING:
    import altair as alt

Drawing = Callable[[], "alt.TopLevelMixin"]
"""It names its data (``altair.NamedData``) as the chart's tables are named."""


@dataclass(frozen=True)
class Chart:
    """One figure, not drawn yet.

    ``key`` is its name as a file, ``title`` says what is seen, ``description`` says it to whoever
    cannot see it and stands below it. ``tables`` are what it shows, the first of them what a
    reader wants in numbers; names are those of its data. ``provenance`` is what must be said of
    all of it, such as ``GPU simulated``: it stands in the drawing itself, which may travel alone.
    """

    key: str
    title: str
    description: str
    tables: Mapping[str, Table]
    drawing: Drawing
    provenance: str = ""

    @property
    def table(self) -> Table:
        return next(iter(self.tables.values()))

    def spec(self) -> dict[str, Any]:
        """As Vega-Lite with the data; a look is put on it in :mod:`.look`."""
        with any_home():  # drawing imports altair
            drawn = self.drawing().to_dict(validate=False)
        drawn["datasets"] = {name: list(table.records) for name, table in self.tables.items()}
        drawn["description"] = self.caption
        if self.provenance:
            drawn["title"] = {"text": self.provenance, "style": ["group-title", "provenance"]}
        return drawn

    @property
    def caption(self) -> str:
        """The description as it stands below the figure."""
        said = f" {self.provenance[0].upper()}{self.provenance[1:]}." if self.provenance else ""
        return f"{self.description}{said}"


def with_provenance(charts: Iterable[Chart], provenance: str) -> list[Chart]:
    """The same charts, which say what must be said of them, as do their tables."""
    charts = list(charts)  # by its id a table is known only as long as it is there
    if not provenance:
        return charts
    tables: dict[int, Table] = {}  # charts that share a table still do

    def said(table: Table) -> Table:
        return tables.setdefault(id(table), replace(table, provenance=provenance))

    return [
        replace(
            chart,
            provenance=provenance,
            tables={name: said(table) for name, table in chart.tables.items()},
        )
        for chart in charts
    ]

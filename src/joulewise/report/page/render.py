"""A page as one HTML file that asks the network for nothing."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from joulewise.report.figures import keep_together, plain
from joulewise.report.page.embedded import embedded, named
from joulewise.report.page.page import Page

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


def render(page: Page, home: str = "") -> str:
    """``home`` is where the name of the program leads to, if the page is one of several."""
    from jinja2.utils import htmlsafe_json_dumps

    data = embedded(page)
    scripts = {name: source(f"{name}.js") for name in ("theme", "page")}
    if data.charts:
        from joulewise.report.charts.bundle import bundle

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

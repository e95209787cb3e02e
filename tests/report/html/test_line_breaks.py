"""Numbers and their units stay on one line of a page, and commands stay as they are typed."""

from dataclasses import replace

from joulewise.formatting import NO_BREAK
from joulewise.report.html.render import render
from tests.helpers.sample_pages import PAGE

COMMAND = "joulewise sweep --power-limit 150 W"


def test_the_headline_has_no_break_between_a_number_and_its_unit():
    verdict = "150 W takes 27.5 ± 0.8 % less <energy> than 300 W"
    html = render(replace(PAGE, verdict=verdict, commands=((COMMAND, "again"),)))
    shown = html.partition('id="verdict" tabindex="-1">')[2].partition("</p>")[0]
    assert shown.replace(NO_BREAK, "~") == (
        "150~W takes 27.5~±~0.8~% less &lt;energy&gt; than 300~W"
    )
    assert f"<code>{COMMAND}</code>" in html

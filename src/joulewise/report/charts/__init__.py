"""Figures in two steps: compute what to show (tables), then draw it (Vega-Lite, by Altair).

::

    chart.py      Chart: the tables of a figure and the function that draws them; ``alt`` (Altair)
    run/          figures of one run, or of the average of several
    sweep/        figures of a sweep
    compare.py    figures of a comparison of runs or of sweeps
    job.py        figures of a recurring job
    records.py    tables from records, which a drawing and a reader share
    encoding.py   units, axes, series and layers that several figures have in common
    labels.py     places labels beside points so that they do not overlap
    theme.py      colours, fonts and sizes: for screens (light, dark) and for print
    files.py      writes SVG, PDF, PNG, HTML, JSON or CSV (vl-convert); Vega's JavaScript
"""

from joulewise.report.charts.chart import Chart, with_provenance
from joulewise.report.charts.files import FORMATS, write_chart
from joulewise.report.charts.theme import COLUMN_MM, THEMES, Theme

__all__ = ["COLUMN_MM", "FORMATS", "THEMES", "Chart", "Theme", "with_provenance", "write_chart"]

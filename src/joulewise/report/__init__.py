"""What is shown of results, and how it is drawn.

::

    resolve.py         a name on the command line -> runs, group, sweep or table; their results
    compare_sides.py   the two sides of a comparison, loaded
    views/             what to show: computed once for the terminal, the page and JSON
    terminal/          a view drawn in the terminal
    charts/            a view drawn as charts
    html/              a view as a page that opens offline
    tables.py          a table in every form: terminal, CSV, JSON, Markdown, LaTeX
    settings_text.py   words for settings, ratios and numbers of runs
    published.py       a sweep beside published figures
    export.py          readings and spans as CSV, JSON or Parquet
    rerun.py           the command line that repeats a run or a sweep

Nothing is imported here: each verb loads only what it needs.
"""

"""Drawing a view in the terminal, one module a verb.

- ``layout``: tables and paragraphs that fit the width of the terminal
- ``run``, ``runs``, ``sweep``, ``compare``, ``doctor``, ``calibration``, ``leases``: the results of
  the verbs of these names
- ``opening``: the first line of a run, before the command starts: imports little
- ``progress``: the bar and the lines of a sweep that goes on
- ``live``: the view that ``view --terminal`` redraws
"""

"""Runs over a space of settings, repeated, in random order, against a reference.

- ``spec``, ``spec_file``: what the user wants, from the command line or a TOML file
- ``axes``, ``boards``, ``space``, ``validate``: the spec resolved against the boards, and checked;
  ``space.Grid`` makes every run, and ``joulewise.search`` has the strategies that search
- ``lifecycle``: **start here**; from a spec to the finished sweep
- ``execute``: the loop of runs; ``lock``: one process at a time, and signals
- ``runners/``: where runs are made (this machine, a Ray cluster, virtual time)
- ``trial``, ``workload``: a measured run as a trial; a recorded run as a simulated workload
- ``stored_sweeps``, ``entry``, ``csv_import``: sweeps on disk, in the index, and of other tools
- ``estimate``: time and energy before the first run

Modules are imported one by one: most commands need few of them.
"""

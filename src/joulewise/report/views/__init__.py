"""What to show of a result, computed once for the terminal, the page and JSON.

::

    run.py, run_tables.py              one run or a group
    sweep.py, sweep_tables.py          a sweep
    sweep_plan.py                      a sweep before it is made
    projection.py                      what a choice of a sweep leads to
    compare.py, compare_tables.py      two runs, groups or sweeps
    listings.py                        the runs and sweeps of a store
    checkup.py, leases.py              what ``doctor`` and ``restore`` show
    live.py                            a run in progress
"""

"""What to show of a result, computed once for the terminal, the page and JSON.

::

    run.py, run_tables.py              one run or a group
    sweep.py, sweep_tables.py          a sweep, and its plan before it is made
    projection.py                      what a choice of a sweep leads to
    compare.py, compare_tables.py      two runs, groups or sweeps
    listings.py                        the runs and sweeps of a store; ``ls --filter``
    checkup.py, leases.py              what ``doctor`` and ``restore`` show
    tuning.py                          what a tuning chose, saved and tried
    job.py, job_tables.py              a recurring job
    live.py                            a run in progress
"""

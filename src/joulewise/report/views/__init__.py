"""What to show of a result, computed once for the terminal, the page and JSON.

- ``run``, ``run_tables``: one run or a group
- ``sweep``, ``sweep_tables``, ``sweep_plan``, ``projection``: a sweep, before and after it was made
- ``compare``, ``compare_tables``: two runs, groups or sweeps
- ``listings``: the runs and sweeps of a store
- ``checkup``, ``leases``: what ``doctor`` and ``restore`` show
- ``live``: a run that goes on
"""

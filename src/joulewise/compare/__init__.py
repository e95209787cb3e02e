"""Compares two runs, groups of runs or sweeps: what differs, and whether it exceeds noise.

::

    quantities.py    energy, time and work of each run; whether both sides did the same work
    judgement.py     one quantity of two sides: ratio, interval, verdict
    runs.py          a comparison of runs, with differences and warnings
    sweeps.py        a comparison of sweeps, by setting and by choice
    conditions.py    ``--fail-if``
    result_json.py   the documented form of ``--json``

Not imported here: each verb loads only what it needs.
"""

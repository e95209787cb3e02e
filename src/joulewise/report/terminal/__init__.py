"""Draws views in the terminal, one module for each verb.

::

    layout.py        lines, tables, warnings and commands that fit the terminal
    run.py, runs.py, sweep.py, compare.py, doctor.py, calibration.py, leases.py
                     the results of the verbs of these names
    jobs.py          recurring jobs, and a recurrence that is over
    tuning.py        what ``tune`` chose
    opening.py       the line before a command starts; loads little
    progress.py      a sweep in progress
    live.py          ``view --terminal``
"""

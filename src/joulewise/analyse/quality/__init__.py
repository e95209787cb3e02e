"""Warnings in a result: what a reader must know before relying on it.

::

    run.py        the recording, the clock, budgets and spans; ``find_warnings`` calls devices.py
    devices.py    about one device: gaps, stuck sensors, limits without effect, waiting

Damaged files, lost marks and the choice of devices are judged elsewhere; ``analyse.run_result``
puts the warnings of all of these together.
"""

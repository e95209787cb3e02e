"""Warnings in a result: what a reader must know before relying on it.

::

    run.py        all of them; about the recording, the clock, budgets and spans
    devices.py    about one device: gaps, stuck sensors, limits without effect, waiting
"""

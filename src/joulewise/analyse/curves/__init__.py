"""Curves over time, made small enough to be drawn; energies never come from here.

::

    run.py          everything that is drawn of one run, and how evenly it was read; start here
    series.py       cumulative energy, sensors, spans, parts
    downsample.py   many readings as few pixels, with every peak
"""

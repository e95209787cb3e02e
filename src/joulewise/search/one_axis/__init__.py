"""Search over one power limit or clock: adaptive importance sampling of a physical model.

- ``posterior``: samples of both, given the runs so far
- ``problem``: the settings, and everything derived from the trials so far
- ``adaptive``: the strategy that a sweep asks
"""

"""Search over one power limit or clock: particles of a physical model of the board.

- ``problem``: the objective, and everything derived from the trials so far
- ``physics_prior``: energy and time of a step over the limit, for given parameters
- ``posterior``: the particles that explain the trials
- ``acquisition``: which setting to try next
- ``adaptive``: the strategy that a sweep asks
"""

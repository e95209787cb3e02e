"""Search over several axes: a Gaussian process, and Optuna's sampler for what to try next.

- ``grid``: the settings as points, and a power limit and a clock as one axis
- ``gaussian_process``: the posterior of time and power over the points
- ``problem``: everything derived from the trials so far
- ``bayesian``: the strategy that a sweep asks
"""

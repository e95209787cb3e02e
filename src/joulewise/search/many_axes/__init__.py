"""Search over several axes: a Gaussian process, and Optuna's sampler for what to try next.

- ``grid``: the settings that can be tried; a power limit and a clock as one axis
- ``problem``: the objective, and everything derived from the trials so far
- ``gaussian_process``: the posterior of energy and time over the settings
- ``bayesian``: the strategy that a sweep asks
"""

"""Strategies that decide which run of a sweep is next (ask/tell): Bayesian optimisation.

- ``strategy``: the interface, and what all searches share: explore, choose, confirm
- ``objective``: metrics, tolerance and boundary; the time and energy of trials
- ``confirmation``: fresh runs, in pairs with the reference, after the choice
- ``one_axis/``: one power limit or clock, by particles of a physical model
- ``many_axes/``: several axes, by a Gaussian process and Optuna

Which result of a finished sweep is best is decided apart from this, in ``joulewise.metrics``.
"""

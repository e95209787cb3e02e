"""The policy of live tuning: a surrogate of the job, and what to try next by it.

Read in this order:

- ``response_model``: a candidate, and the physical curves that the prior draws from
- ``step_statistics``: means of steps and their noise, robust to outliers
- ``tempering``: samples of any posterior over the unit cube
- ``posterior``: samples of time and energy at every candidate, given the steps so far
- ``objective``: scores and losses of candidates, the choice, the next look
- ``drift``: finds that the steps at the held setting have changed
- ``tuning_policy``: asks for looks at settings, settles, watches for drift
- ``choice``: what the policy tells: what it tried, fitted and chose, and why
- ``one_axis_policy``: the policy over one control, in the form that is judged
"""

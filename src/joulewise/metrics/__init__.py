"""From energies and times of runs to scores, intervals and choices.

::

    evaluate.py      evaluate(): a sweep becomes a SweepResult; start here
      trial_table.py   its runs as arrays: settings by blocks
      intervals.py     means and paired ratios with 95 % intervals
      winner.py        the best of many, without the winner's curse
      power_caps.py    whether power limits had an effect, and quadratic fits against the limit
      quality.py       warnings
      result.py        the result, and its JSON
    metric.py        the rules that rank (energy, time): edp, eds:2.0, cost:0.5 (needs no numpy)
    boundary.py      what is counted: GPUs, node or wall; run, epoch, sample or training
    projection.py    the next run, and a year of runs
"""

"""Two runs, groups or sweeps: what differs, and whether beyond noise.

- ``quantities``: energy, time and work of what is compared
- ``judgement``: the ratio with its interval, and the verdict
- ``runs``, ``sweeps``: comparisons of these
- ``conditions``: ``--fail-if``
- ``result_json``: the documented form
"""

"""Where the runs of a sweep are made.

- ``runner``: the interface, and the GPUs that each run has for itself
- ``local``: on this machine; ``early_stop`` says when to end a run early, ``cool_down`` waits
  between runs
- ``on_ray``: on the nodes of a Ray cluster
- ``virtual``, ``virtual_record``: simulated, in virtual time
"""

"""Where the runs of a sweep are made.

- ``runner``: what a sweep asks of any of them
- ``local``: on the GPUs of this machine; ``child_run`` starts one run, ``early_stop`` ends it
- ``on_ray``: on the nodes of a Ray cluster
- ``virtual``, ``virtual_record``: simulated, in virtual time
"""

"""What the power sensor of a board really does: update period, averaging window, lag and gain.

- ``board``: the calibration of one GPU, from its load to its sensor profile
- ``bench``, ``virtual_bench``, ``gpu_load``: square waves of load and what the sensor shows of them
- ``update_period``, ``response``: how often it has new values, and of which time
- ``gain``, ``wall_meter``: its scale, by a meter at the wall
"""

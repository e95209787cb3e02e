"""What the power sensor of a board really does: update period, averaging window, lag and gain.

- ``board``: the calibration of one GPU, from its load to its sensor profile; **start here**
- ``bench``, ``gpu_load``: square waves of load, and polls of the sensor meanwhile
- ``update_period``: how often the sensor has new values
- ``response``: over which window it averages, and how late its values are
- ``gain``: its scale, by comparison with a meter at the wall
"""

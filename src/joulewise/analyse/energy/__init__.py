"""The energy of any window of one device, with its sampling error.

::

    windows.py            window_energy(): counter and integral put together; start here
    power_integral.py       the integral of power readings, and its error
      gaps.py                 time without a new reading
    counter.py              the energy counter, interpolated by the power curve
      counter_readings.py     its new values
      counter_timing.py       when the energy of each value was drawn
      counter_offset.py       its offset from the power curve (Kalman smoother), and its jumps
      power_curve.py          power over time around the edges of windows
      load_steps.py           sudden changes of the load at marks, which readings show late
    sensor_timing.py        update period, averaging window and lag of the sensor
"""

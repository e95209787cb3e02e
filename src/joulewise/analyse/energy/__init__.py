"""Joules of any window of one device, with their error.

- ``windows``: the energy of windows from all that is known of a device; start here
- ``power_integral``, ``noise``, ``gaps``: the integral of power readings and its error
- ``counter``, ``counter_readings``, ``counter_timing``, ``power_curve``: the energy counter, and
  how power readings place its values in time
- ``load_steps``: sudden changes of the load, which readings show late
- ``sensor_timing``: update period, window and lag of the sensor
"""

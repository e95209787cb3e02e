"""The physics of a simulated GPU: power, time, clocks and heat.

- ``steady_state``: formulas for a settled board, on numpy arrays (fits, forecasts)
- ``governor``: the control loop that holds a power cap by moving the clock
- ``board_state``: everything that describes a board at one moment, and its heat
- ``integrate``: advances a state through time and returns what the board did (``play``)
"""

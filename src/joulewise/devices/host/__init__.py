"""The CPU, the memory and the chip beside the GPU.

- ``rapl``, ``powercap``: energy counters and limits of CPU packages
- ``cpu_model``, ``ram``: modelled and assumed power where nothing is measured
- ``grace``: the CPU on the module of an NVIDIA superchip
- ``base``, ``cpu``: finding them
"""

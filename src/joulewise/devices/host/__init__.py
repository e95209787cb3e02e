"""CPU packages, memory and the platform around them.

- ``cpu``: finds the CPUs, by the best of the three ways below
- ``rapl``, ``powercap``: energy counters and power limits of CPU packages and memory
- ``grace``: NVIDIA Grace CPUs, by their power meters
- ``cpu_model``: power modelled from load, where nothing is measured
- ``ram``: power assumed for each memory module, where nothing is measured
- ``base``: what devices with an energy count share, and reading the kernel's files
"""

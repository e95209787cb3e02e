"""NVML without a driver: a C library that reads shared memory, and the Python side of it.

- ``shim/``: the sources of ``lib/libnvidia-ml.so.1``, which NVML clients load
- ``shared_memory``: the memory that both share, laid out by ``shim/layout.h``
- ``identity``: what never changes of a GPU, as fields of that layout
- ``faults``: faults to inject, and how long calls take
- ``nvidia_smi``, ``nvidia_smi_fields``: a stand-in for ``nvidia-smi`` (``bin/``)
- ``absent/``: an empty library, for the fault ``library-absent``
"""

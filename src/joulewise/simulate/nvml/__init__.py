"""NVML without a driver: a C library over shared memory (``shim/``), and Python's side of it."""

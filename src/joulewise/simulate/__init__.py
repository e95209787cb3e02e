"""GPUs that are not there: physics, sensor, workloads, and an NVML that shows them."""

"""``joulewise sim``: runs a command with simulated GPUs that exist as long as it does.

- ``launch``: checks the request, starts everything and returns the command's exit status
- ``engine``: the event loop that runs the GPUs and serves clients over a socket
- ``gpu``: one GPU in real time, and the CPU of a superchip
- ``truth``: the exact energy as a file, and NVML's accounting of processes
"""

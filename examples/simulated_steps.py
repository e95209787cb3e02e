"""ResNet-50 with marked steps, on a GPU that is not there: `joulewise tune` can tune it.

It needs a `joulewise sim --gpu v100 --` before it. The first argument is the number of steps; any
others are batch sizes, among which the steps are divided, as in `simulated_steps.py 900 32 96`.
"""

import sys

import joulewise
from joulewise.simulate.client import gpu

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 600
BATCH_SIZES = [int(size) for size in sys.argv[2:]] or [32]

board = gpu(0)
for step in range(STEPS):
    with joulewise.span("step", step):
        board.step("resnet50", batch_size=BATCH_SIZES[step * len(BATCH_SIZES) // STEPS])

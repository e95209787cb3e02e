"""Programs that mark nothing, on simulated GPUs: with a bar of progress, periodic, or irregular.

The first argument is which of them; it trains until its standard input ends.
"""
# ruff: noqa: T201 - a program that prints

import os
import random
import select
import sys
import time

from joulewise.simulate import gpu

KIND = sys.argv[1]
board, rng = gpu(0), random.Random(1)
print(os.getpid(), flush=True)
number = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    if KIND == "bar":
        board.step("resnet50", batch_size=16)
        sys.stderr.write(f"\r\x1b[32m{number:5}\x1b[0m |##   | {number}/9999 [")
        sys.stderr.flush()
    elif KIND == "periodic":
        for _ in range(16):
            board.step("resnet50", batch_size=16)
        time.sleep(0.6)
    else:
        for _ in range(rng.choice((1, 3, 9, 27, 81))):
            board.step("resnet50", batch_size=rng.choice((4, 16, 64)))
        time.sleep(rng.choice((0.0, 0.2, 1.0, 3.0)))
    number += 1
print("trained", flush=True)
sys.exit(7)

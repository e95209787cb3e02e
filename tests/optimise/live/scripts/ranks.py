"""Two ranks of a data-parallel training on two simulated GPUs; each is told what it is.

Under torchrun they exchange their gradients by real torch (gloo, on the CPU); with the argument
``apart`` they are two processes that this one starts, which wait for nobody. The second rank has a
larger batch, and takes longer. They train until a file is gone, whose path is in $UNTIL.
"""
# ruff: noqa: T201 - a program that prints, and starts itself

import os
import subprocess
import sys
from pathlib import Path

import joulewise
from joulewise.simulate import gpu

BATCH_SIZES = (16, 32)
STATUS = 7


def train(exchange):
    rank = int(os.environ["RANK"])
    board, number = gpu(int(os.environ["LOCAL_RANK"])), 0
    with joulewise.span("training"):
        while Path(os.environ["UNTIL"]).exists():
            with joulewise.span("step", number):
                board.step("resnet50", batch_size=BATCH_SIZES[rank])
                if not exchange(number):
                    break
            number += 1


def launch():
    children = []
    for rank in (0, 1):
        told = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": rank, "MASTER_PORT": 1}
        environ = {**os.environ, **{name: str(value) for name, value in told.items()}}
        children.append(subprocess.Popen([sys.executable, __file__], env=environ))
    print(os.getpid(), *(child.pid for child in children), flush=True)
    for child in children:
        child.wait()
    print("trained", flush=True)
    sys.exit(STATUS)


def train_with_torch():
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    if distributed.get_rank() == 0:
        print(os.getpid(), flush=True)
    gradients = torch.ones(1000)

    def exchange(_number):
        distributed.all_reduce(gradients)
        goes_on = torch.tensor(float(Path(os.environ["UNTIL"]).exists()))
        distributed.all_reduce(goes_on, distributed.ReduceOp.MIN)
        return bool(goes_on)

    train(exchange)
    distributed.destroy_process_group()


if "apart" in sys.argv:
    launch()
elif "TORCHELASTIC_RUN_ID" in os.environ:
    train_with_torch()
else:
    train(lambda _number: True)

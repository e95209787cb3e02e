"""ResNet-50 on a GPU that is not there; needs a `joulewise sim --gpu v100 --` before it."""

import joulewise
from joulewise.simulate.client import gpu

EPOCHS = 4
STEPS = 20

board = gpu(0)
for epoch in range(EPOCHS):
    with joulewise.span("epoch", epoch):
        board.step("resnet50", batch_size=32, steps=STEPS)
    print(f"epoch {epoch + 1} of {EPOCHS}")

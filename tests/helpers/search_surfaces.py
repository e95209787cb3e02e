"""A training whose time and energy are known at every batch size, power limit and clock."""

import random

from joulewise.data import Energy, Source
from joulewise.data.sweeps import POWER_LIMIT, SM_CLOCK, Setting, Trial, TrialState, Work

SAMPLES = 100_000
LIMITS_W = tuple(map(float, range(150, 301, 25)))
CLOCKS_MHZ = tuple(map(float, range(900, 1501, 100)))
BATCHES = ("32", "64", "128")


def setting(limit_w, clock_mhz, batch="32"):
    return Setting.of({POWER_LIMIT: limit_w, SM_CLOCK: clock_mhz, "batch_size": batch})


SETTINGS = [setting(p, c, b) for p in LIMITS_W for c in CLOCKS_MHZ for b in BATCHES]
REFERENCE = setting(300.0, None)


def truth(of):
    """Seconds and joules of a whole run."""
    clock = min(of[SM_CLOCK] or 1530.0, 800 + 4 * (of[POWER_LIMIT] - 100))
    time_s = 300 * (0.4 + 0.6 * 1530 / clock) * (1 + 8 / int(of["batch_size"]))
    return time_s, time_s * (60 + 200 * (clock / 1530) ** 2.5)


def edp(of):
    time_s, energy_j = truth(of)
    return time_s * energy_j


BEST = min(map(edp, SETTINGS))


def made(planned, noise=0.003, *, marks=True, **more):
    """What a run or a look comes to; the same again for the same plan."""
    chance = random.Random(f"{planned.setting} {planned.block} {planned.look_s}")
    time_s, energy_j = (it * chance.lognormvariate(0, noise) for it in truth(planned.setting))
    steps = SAMPLES // int(planned.setting["batch_size"])
    share = 1.0
    if planned.look_s is not None:
        looked = max(int(steps * planned.look_s / time_s), 1)
        # What is besides the steps (reading data, validation) is in no look.
        steps, share = looked, 0.9 * looked / steps
    energy = {"gpu": Energy(share * energy_j, 0.0, 0.0, Source.MEASURED)}
    spans = {"step": Work(steps, share * time_s, energy)} if marks else {}
    trial = Trial(
        planned.setting,
        planned.block,
        TrialState.DONE,
        planned.lane,
        planned.look_s,
        gpu=f"gpu{planned.lane}",
        time_s=share * time_s,
        energy=energy,
        spans=spans,
    )
    return Trial(**{**vars(trial), **more})


def search(strategy, make=made):
    """All trials to the end of the search."""
    trials = []
    while (planned := strategy.ask(())) is not None:
        trials.append(make(planned))
        strategy.tell(trials[-1])
    return trials


def wholes(trials, until=1000):
    return [it for it in trials if it.look_s is None and it.block < until]

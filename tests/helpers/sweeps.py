"""Sweeps made of numbers, for tests of what is read from them."""

import numpy as np

from joulewise.data.devices import Source
from joulewise.data.energy import Energy
from joulewise.data.sweeps import POWER_LIMIT, Setting, Sweep, Trial, TrialState
from joulewise.metrics.trial_table import TrialTable

BOARD = "GPU-1"


def limit(power_w, **others):
    return Setting.of({POWER_LIMIT: float(power_w), **others})


def measured(value, sampling=0.0, gain=0.05):
    return Energy(value, sampling * value, gain * value, Source.MEASURED)


def trial(setting, block, time_s, energy_j, *, sampling=0.0, gain=0.05, **others):
    result = {"state": TrialState.DONE, "gpu": BOARD, **others}
    energy = {} if energy_j is None else {"gpu": measured(energy_j, sampling, gain)}
    return Trial(setting=setting, block=block, time_s=time_s, **{"energy": energy, **result})


def sweep(trials, reference, settings=None, limits_w=(100.0, 300.0, 300.0), **others):
    trials = list(trials)
    settings = settings or tuple(dict.fromkeys(it.setting for it in trials))
    return Sweep(
        id="made",
        asked={},
        seed=0,
        reference=reference,
        settings=tuple(settings),
        trials=tuple(trials),
        limits_w=limits_w,
        **others,
    )


def grid(curve, limits, reference_w, *, blocks=5, noise=0.0, seed=0, **others):
    """Runs of every limit in every block; ``curve`` gives (time_s, energy_j) of a limit."""
    rng = np.random.default_rng(seed)
    trials = []
    for block in range(blocks):
        for power_w in limits:
            time_s, energy_j = np.array(curve(power_w)) * np.exp(rng.normal(0, noise, 2))
            trials.append(trial(limit(power_w), block, float(time_s), float(energy_j), **others))
    return sweep(trials, limit(reference_w))


def table(time_s, energy_j, *, reference=0, boards=None, error=0.0):
    """One row a setting, one column a block; the GPU is the only boundary."""
    time_s, energy_j = np.asarray(time_s, float), np.asarray(energy_j, float)
    nothing = np.full(time_s.shape, np.nan)
    return TrialTable(
        settings=tuple(limit(row) for row in range(len(time_s))),
        reference=reference,
        boards=np.zeros(time_s.shape[1], np.int64) if boards is None else np.asarray(boards),
        fresh=np.zeros(time_s.shape[1], bool),
        time_s=time_s,
        energy_j={"gpu": energy_j},
        error_j={"gpu": error * energy_j},
        gain_j={"gpu": 0.05 * energy_j},
        power_w=energy_j / time_s,
        capped=nothing,
        clock_mhz=nothing,
        start_ns=nothing,
        max_power_w=300.0,
        sources={},
        assumed=(),
    )

"""Where to look next, by Optuna: a study is made anew from what was tried, each time."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from joulewise.errors import JoulewiseError
from joulewise.search.several_space import Places

GP: Final = "gp"
TPE: Final = "tpe"


def find_sampler() -> str:
    """The best that is installed: the Gaussian process of Optuna is built on torch."""
    if find_spec("optuna") is None:
        raise JoulewiseError(
            "a search along several axes needs optuna", "pip install 'joulewise[search]'"
        )
    return GP if find_spec("torch") else TPE


def suggest(
    places: Places,
    tried: Mapping[int, float],
    under_way: Sequence[int],
    *,
    sampler: str,
    seed: int,
) -> list[int]:
    """A value of each axis that promises most; ``tried`` has the score of each point, less is best.

    There may be no such setting: the axes are free of each other here.
    """
    import optuna
    from optuna.trial import TrialState, create_trial

    distributions = _distributions(places)

    def params(at: int) -> dict[str, int]:
        return dict(zip(distributions, places.steps[at].tolist(), strict=True))

    with _quietly():
        study = optuna.create_study(sampler=_sampler(sampler, seed))
        study.add_trials(
            [
                create_trial(params=params(at), distributions=distributions, value=score)
                for at, score in sorted(tried.items())
            ]
        )
        study.add_trials(
            [
                create_trial(
                    state=TrialState.RUNNING, params=params(at), distributions=distributions
                )
                for at in under_way
            ]
        )
        asked = study.ask(distributions).params
    return [asked[name] for name in distributions]


def _distributions(places: Places) -> dict[str, Any]:
    from optuna.distributions import CategoricalDistribution, IntDistribution

    return {
        axis.name: IntDistribution(0, len(axis.values) - 1)
        if axis.ordered
        else CategoricalDistribution(range(len(axis.values)))
        for axis in places.axes
    }


def _sampler(name: str, seed: int) -> Any:
    from optuna import samplers

    if name == GP:
        return samplers.GPSampler(seed=seed, n_startup_trials=0)
    return samplers.TPESampler(seed=seed, n_startup_trials=0, multivariate=True)


@contextmanager
def _quietly() -> Iterator[None]:
    """Optuna tells of every study and trial; torch's threads only wait for each other here."""
    import optuna

    torch = import_module("torch") if find_spec("torch") else None
    threads = torch.get_num_threads() if torch else 0
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if torch:
        torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)
        if torch:
            torch.set_num_threads(threads)

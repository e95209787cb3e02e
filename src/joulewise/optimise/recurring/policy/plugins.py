"""Policies by name: the built-in one, and those that other installed packages offer.

A package offers a policy as an entry point of the group ``joulewise.policies``, which names an
object that is a :class:`~joulewise.optimise.recurring.policy.interface.PolicyFactory`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from joulewise.errors import JoulewiseError, UsageError
from joulewise.optimise.recurring.policy.interface import PolicyFactory

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "joulewise.policies"
DEFAULT_POLICY: Final = "default"


def load_policy(name: str) -> PolicyFactory:
    """The factory of the policies of this name.

    Raises:
        UsageError: There is none.
        JoulewiseError: The package that offers it cannot be loaded, or offers something else.
    """
    if name == DEFAULT_POLICY:
        from joulewise.optimise.recurring.policy.batch_size_policy import make_policy

        return make_policy
    points = _find_entry_points()
    if name not in points:
        known = ", ".join((DEFAULT_POLICY, *sorted(points)))
        raise UsageError(
            f"There is no policy {name!r}.",
            f"Known are: {known}. Another is known when the package that offers it is installed.",
        )
    point = points[name]
    hint = f"Ask the authors of that package, or use the policy {DEFAULT_POLICY}."
    try:
        factory = point.load()
    except Exception as error:
        raise JoulewiseError(
            f"The policy {name} ({point.value}) cannot be loaded: {error!r}.", hint
        ) from error
    if not (callable(factory) and isinstance(factory, PolicyFactory)):
        raise JoulewiseError(
            f"The policy {name} ({point.value}) has no state_version and restore.", hint
        )
    return factory


def _find_entry_points() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # slow to load, for what few have

    return {point.name: point for point in entry_points(group=GROUP)}

"""Turning knobs, and never leaving a mark: leases, their guardian, and its journal."""

from joulewise.control.lease import Lease, lease

__all__ = ["Lease", "lease"]

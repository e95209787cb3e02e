"""Changes power limits and clocks, and puts them back whatever happens.

A *holder* takes a *lease* on settings of a device. A *guardian* process makes the changes and
outlives the holder; it writes each change to a *journal* before it makes it, so that even after
``kill -9`` of both, the next joulewise command restores what was there before::

    lease.py             lease(): the public interface
    client.py            the holder's connection to a guardian
    protocol.py          the messages between them
    server.py            the guardian's connections
    guardian.py          sets, and puts back when a holder is gone
    guardian_process.py  main() of a guardian that serves one holder
    holds.py             what is held: changes, holders, leases on top of each other
    claims.py            one guardian for each setting on the whole machine
    journal.py           the changes on disk
    restore.py           puts back, also what a dead guardian left
    status.py            what is set now, and by whom
    permissions.py       who may change settings, and who else is affected
    deadline_device.py   devices whose calls return in time
    messages.py          changes as text, and the log
    service/             the guardian as a system service for users without the right
"""

from joulewise.control.lease import Lease, lease

__all__ = ["Lease", "lease"]

"""The guard service: leases for users who may not change settings themselves.

- ``config``: who may do what
- ``server``: the service and its systemd unit
"""

"""The store as pages on this machine: read-only, on loopback, for whoever has the address."""

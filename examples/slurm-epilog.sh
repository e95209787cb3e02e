#!/bin/sh
# Puts back power limits and clocks that a job has left, before the next job gets the node.
# In slurm.conf: Epilog=/etc/slurm/epilog.d/*.sh. It runs as root; a status other than 0 drains
# the node, which is right: a limit that cannot be put back would slow the next tenant.
exec "${JOULEWISE:-/usr/local/bin/joulewise}" restore --epilog

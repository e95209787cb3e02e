"""Small and read-only file systems, for tests of disks that take no more."""

import os
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted_tmpfs(folder, options):
    """A new file system for the time of a test; the path at which it can be used.

    Root mounts it on ``folder``. Another user does so in a user and mount namespace of a helper
    process, and reaches it through ``/proc``. Skips where the machine allows neither.
    """
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if os.geteuid() == 0:
        if subprocess.run(mount, check=False, capture_output=True).returncode:
            pytest.skip("root may not mount here")
        try:
            yield folder
        finally:
            subprocess.run(["umount", str(folder)], check=True)
        return
    script = '"$@" && echo mounted && exec cat'
    namespace = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]
    with subprocess.Popen(
        [*namespace, *mount],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as helper:  # fmt: skip
        # When this block is left, its input is closed, and it ends.
        if helper.stdout.readline() != b"mounted\n":
            pytest.skip("only root may mount here: there are no user namespaces")
        yield Path(f"/proc/{helper.pid}/root") / folder.relative_to("/")

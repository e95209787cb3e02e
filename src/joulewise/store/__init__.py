"""What lies on disk: a store of run directories, sweeps and an index.

- ``layout``, ``files``: names of files, and writing them safely
- ``manifest``, ``runs``: run.json, and finding a run
- ``trace``, ``arrow_stream``, ``parquet``: the recorded streams of the devices
- ``spans``: the marks that a program wrote
- ``checksums``, ``codec``, ``redact``: damage, plain JSON values, secrets
- ``index``: lists of large stores
"""

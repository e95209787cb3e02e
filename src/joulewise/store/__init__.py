"""What lies on disk: a store of run directories, sweeps and an index.

::

    layout.py        names of the files in a run directory, and what each holds
    files.py         files that grow, files that are replaced as a whole, and durability
    manifest.py      run.json
    runs.py          the store: making, listing, finding and removing runs; the head of result.json
    arrow_stream.py  a device's stream while it is recorded (Arrow IPC)
    parquet.py       the same once it is packed
    trace.py         reading a stream, whole, damaged or while it grows
    spans.py         spans, from the marks that the measured program wrote
    logged_values.py figures that the program logged, from its marks
    checksums.py     by which damage to a run directory is found
    tuning_file.py   tuning.json: what a tuner does, or did
    redact.py        masking secrets in command lines
    index/           a SQLite index, so that lists of large stores are quick
"""

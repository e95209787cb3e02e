"""From recorded streams to joules of any span, with their error.

::

    run_result.py       analyse(): a run directory becomes a RunResult; start here
    stored_result.py      result.json: a result is computed once
    run_spans.py          the spans of a run, which of them a result lists, and their summaries
    sensor_summary.py     the same of sensors, and how often they had a new value
    run_windows.py      the energy between any moments of a run that has ended
    group.py            the runs of several nodes as one result
    device_energy.py    one device over all windows: energies, baseline, faults
      energy/             the energy of windows: counter, power integral, errors
      baseline.py         idle power, from the trace itself
      activity.py         whether a GPU did more than idle
    attribution.py      which devices were the command's, so that each joule counts once
    quality/            warnings
    curves/             what figures show, downsampled
    export_tables.py    streams and spans as tables
    damage.py           damaged files and impossible values
    validation.py       whether epochs contain their validations
    chunks.py           going through a stream; time_intervals.py, student_t.py: helpers

Modules are imported one by one: ``validation``, ``attribution`` and ``time_intervals`` are used by
processes that load no numpy.
"""

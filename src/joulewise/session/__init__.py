"""One measured run: a command or a block of Python, from its start to its result.

Two processes take part. The one that the user started runs the command; the *recorder* reads the
sensors and outlives it. They exchange JSON lines over a socket::

    run.py               joulewise run: starts the command, waits for its end, shows the result
    attached_process.py  joulewise run --pid: measures a process that somebody else started
    measure.py           joulewise.measure(): measures a block of the user's program
    callbacks.py         callbacks of frameworks that mark a training in a measurement
    spans.py             joulewise.span(): named stretches of a run
    request.py           what is requested of a recorder, and its answer
    recorder_client.py   the recorder as the starting process sees it
    recorder_process.py  the recorder's process: main(), and its side of the connections
    recording.py         the run while it is recorded: energy so far, live.json, result
    forecast.py          what the whole run will take
    settings.py          power limits and clocks for the time of a run
    gpu_discovery.py     which GPUs and CPUs can be set, found by a process of its own
    group.py             one recorder for all commands of a group on a node, and their GPUs
    termination.py       finds and ends the processes of a command
"""

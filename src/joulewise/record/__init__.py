"""The sampler: reads every device at its deadlines and writes a run directory.

::

    recorder.py         records a run from start to stop, and writes run.json meanwhile
    inventory.py        what each device has, asked before and while it is read
    channels.py         which device is read by which loop, how often, into which stream
    sampling_loop.py    a thread that serves its channels at every deadline; the watchdog of loops
    schedule.py         deadlines, waiting for them, dense readings at a command's start and end
    readings.py         a row of a device's sensors; polling a device that does not answer
    driver_samples.py   draining the samples that a driver buffers itself
    clocks.py           the driver's, the wall and the monotonic clock
    writer.py           the thread that writes streams, lines of JSON and notes
    statistics.py       how well a stream kept its time, and joules so far
    processes.py        which processes use a device, and which of them are the command's
    sensor_profiles.py  what is known of a power sensor: calibrated, or documented
    environment.py      host, machine, container, versions, git commit

Data flows one way: a loop serves a channel, which adds rows to a buffer; the writer takes the rows
and hands them to the stream's file, its statistics and its running total.
"""

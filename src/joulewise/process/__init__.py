"""Child processes, signals, sockets and state folders: what every other package may build on.

::

    child.py         the user's command as a child process; processes of our own
    signals.py       the signals that arrive while a command runs, and who else received them
    descriptors.py   keeps files that we open from taking descriptors 0 to 2
    output_copy.py   the output of a command, copied to where it belongs and to a listener
    output_lines.py  the lines of that output
    json_lines.py    messages as JSON lines over sockets
    linux.py         Linux system calls and /proc: timers, signal queues, identity of processes
    state_dir.py     the folder that outlives a process, and the journals that a crash left in it
    failpoints.py    places at which a test can kill this process
"""

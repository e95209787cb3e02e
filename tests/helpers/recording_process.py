"""A process that records a run until its input ends, for tests that look at it from outside."""

import sys
from pathlib import Path

from joulewise.devices import Options, discover
from joulewise.record.recorder import Recorder, RecorderOptions


def main(run, rate_hz):
    discovery = discover(Options(energy_first=True))  # as for `joulewise run`
    recorder = Recorder(Path(run), discovery, RecorderOptions(rate_hz=float(rate_hz)))
    recorder.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()
    recorder.stop(exit_code=0)
    discovery.close()


main(*sys.argv[1:])

"""What a run has drawn so far counts the devices that its command has touched so far."""

import json
from types import SimpleNamespace

from joulewise.data import DeviceInfo, Kind, Quantity, Source
from joulewise.record.statistics import EnergySoFar
from joulewise.session.recording import ProgressTracker
from joulewise.session.request import Request
from joulewise.store.layout import LIVE, PROCESSES
from joulewise.store.manifest import Manifest, RecordedDevice

S = 1_000_000_000


def test_a_gpu_counts_from_when_the_command_is_seen_on_it(tmp_path):
    keys = ("gpu0", "gpu1")
    course = ProgressTracker(tmp_path, Request(), 0)
    for key in keys:
        sight(tmp_path, key, 0, [])
    assert [counted_j(course, tmp_path, keys, second) for second in (1, 2)] == [None, None]
    for second, gpu, counted in ((3, "gpu1", 1), (4, "gpu1", 1), (5, "gpu0", 2)):
        sight(tmp_path, gpu, second, [{"pid": 7, "name": "python", "ours": True}])
        assert counted_j(course, tmp_path, keys, second + 1) == counted * 100


def manifest(*keys):
    devices = (
        RecordedDevice(
            DeviceInfo(key, Kind.GPU, "V100", key, "NVIDIA"), {"power_w": Source.MEASURED}
        )
        for key in keys
    )
    return Manifest("run", (), "/", 10.0, 0, 0, "boot", tuple(devices))


def sight(run, gpu, second, processes):
    line = {"t_ns": second * S, "device": gpu, "processes": processes}
    with (run / PROCESSES).open("a") as file:
        file.write(json.dumps(line) + "\n")


def counted_j(course, run, keys, second):
    drawn = SimpleNamespace(
        sum=EnergySoFar(100.0, 10.0, 0.1, Quantity.POWER), power_w=10.0, energy_at=lambda _: 100.0
    )
    course.check(dict.fromkeys(keys, drawn), manifest(*keys), second * S, ended=False)
    total = json.loads((run / LIVE).read_text())["energy_j"]["total"]
    return total and total["value"]

"""Superchips: what NVML's power and energy are of, and what is inside."""

from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pynvml
import pytest

from joulewise.data import ControlKind, DeviceInfo, Kind, PowerScope, Quantity, Reading, Unavailable
from joulewise.data.devices import find_contained
from joulewise.devices import Options
from joulewise.devices.cuda_visible import IN_MIG_MODE, MigDevice
from joulewise.devices.nvidia import find, power_scopes
from joulewise.devices.nvidia import gpu as device_module
from joulewise.devices.nvidia.power_scopes import module_contents
from joulewise.record.inventory import recorded_device
from joulewise.simulate.boards import load_board
from joulewise.units import NS_PER_S
from tests.helpers.nvml_devices import POWER_W, on, simulated

HOST_W = 90.0
GH200 = load_board("gh200")
CPU0, CPU1 = (DeviceInfo(key, Kind.CPU, key, key, "any") for key in ("cpu0", "cpu1"))


def variant(**changes):
    return replace(GH200, module=replace(GH200.module, **changes))


def write_cpus(folder, packages, per_package=2):
    """A /proc of so many packages, the CPUs of each one after the other."""
    folder.mkdir()
    count = packages * per_package
    lines = (f"processor\t: {cpu}\nphysical id\t: {cpu // per_package}\n" for cpu in range(count))
    (folder / "cpuinfo").write_text("\n".join(lines))
    (folder / "stat").write_text("".join(f"cpu{i} 1 1 1 1 1 1 1\n" for i in range(count)))
    return folder


@contextmanager
def opened(monkeypatch, tmp_path, *boards, host_w=HOST_W, faults="", packages=1, **environ):
    """The GPUs of modules whose CPU side draws ``host_w``; time passes while they are watched."""
    with simulated(monkeypatch, *boards, faults=faults, folder=tmp_path) as machine:
        for gpu in range(len(boards)):
            if host_w:
                machine.shared.publish_host(gpu, machine.now_ns - 60 * NS_PER_S, host_w, 0.0)
        proc = write_cpus(tmp_path / "proc", packages)
        environ = {"JOULEWISE_SIM": machine.shared.path, "JOULEWISE_PROC": str(proc), **environ}
        devices = find(Options(environ=environ, sleep=machine.elapse))
        assert isinstance(devices, list), devices
        try:
            yield devices
        finally:
            for device in devices:
                device.close()


def power_w(device, quantity=Quantity.POWER):
    reading = device.read(quantity)
    assert isinstance(reading, Reading), reading
    return reading.value


@pytest.mark.parametrize("plain_is_module", [True, False])
def test_the_power_of_a_module_is_that_of_all_on_it_whatever_the_plain_call_reports(
    monkeypatch, tmp_path, plain_is_module
):
    board = variant(plain_is_module=plain_is_module)
    with opened(monkeypatch, tmp_path, board) as (device,):
        assert device.info.power_scope is PowerScope.MODULE
        assert device.info.contains == ("cpu0", "dram0")
        for quantity in (Quantity.POWER, Quantity.POWER_AVERAGE, Quantity.POWER_INSTANT):
            assert power_w(device, quantity) == pytest.approx(POWER_W + HOST_W, abs=0.01)
        assert power_w(device, Quantity.GPU_POWER) == pytest.approx(POWER_W, abs=0.01)
        assert 0 < power_w(device, Quantity.MEMORY_POWER) < POWER_W


def test_the_drivers_samples_of_power_are_not_used_for_a_module(monkeypatch, tmp_path):
    with opened(monkeypatch, tmp_path, GH200) as (device,):
        assert isinstance(device.samples(Quantity.POWER), Unavailable)


def test_a_module_scope_that_equals_the_gpu_scope_is_no_module(monkeypatch, tmp_path):
    with opened(monkeypatch, tmp_path, GH200, host_w=0) as (device,):
        assert device.info.power_scope is PowerScope.GPU
        assert device.info.contains == ()
        assert power_w(device) == pytest.approx(POWER_W, abs=0.01)


def test_a_counter_that_grows_with_the_gpu_alone_is_the_gpus(monkeypatch, tmp_path):
    board = variant(counter_is_module=False, plain_is_module=False)
    with opened(monkeypatch, tmp_path, board) as (device,):
        assert device.info.power_scope is PowerScope.GPU
        assert device.info.contains == ()
        assert "module" not in device.info.note
        assert power_w(device) == pytest.approx(POWER_W, abs=0.01)
        assert isinstance(device.sensors[Quantity.GPU_POWER], Unavailable)
        assert isinstance(device.read(Quantity.GPU_POWER), Unavailable)


@pytest.mark.parametrize(
    ("watched", "scope"),
    [
        (("gpu", "module"), PowerScope.MODULE),
        (("gpu", None), PowerScope.MODULE),
        (("gpu", "gpu"), PowerScope.GPU),
    ],
)
def test_one_watch_that_says_otherwise_changes_nothing(monkeypatch, tmp_path, watched, scope):
    answers = iter([each and PowerScope(each) for each in watched])
    monkeypatch.setattr(device_module, "watch_counter", lambda *_: next(answers))
    with opened(monkeypatch, tmp_path, GH200) as (device,):
        assert device.info.power_scope is scope


class PlayedModule:
    """A module under a load of bursts, by NVML's fields and its counter; time is its own.

    Its sensor is Hopper's: ten readings a second, instant ones of 25 ms and average ones of 1 s.
    """

    TICK_S, INSTANT_S, AVERAGE_S = 0.1, 0.025, 1.0
    IDLE_W, LOAD_W, BESIDE_W = 60.0, 650.0, 80.0

    def __init__(self, burst_s, pause_s, *, counts_module, phase_s=0.0):
        self.burst_s, self.pause_s, self.phase_s = burst_s, pause_s, phase_s
        self.counts_module = counts_module
        self.t_s = 100.0

    def energy_j(self, t_s, *, is_module):
        period_s = self.burst_s + self.pause_s
        periods, rest_s = divmod(t_s + self.phase_s, period_s)
        busy_s = periods * self.burst_s + min(rest_s, self.burst_s)
        joules = self.IDLE_W * t_s + (self.LOAD_W - self.IDLE_W) * busy_s
        return joules + self.BESIDE_W * t_s * is_module

    def tick_s(self):
        return self.t_s // self.TICK_S * self.TICK_S

    def read_j(self):
        return self.energy_j(self.tick_s(), is_module=self.counts_module)

    def fields(self, _handle, asked):
        return [SimpleNamespace(nvmlReturn=0, value=self.power(*key)) for key in asked]

    def power(self, field, scope):
        window_s = self.AVERAGE_S if field == power_scopes.POWER_AVERAGE else self.INSTANT_S
        end_s, is_module = self.tick_s(), scope == power_scopes.MODULE
        before_j, joules = (
            self.energy_j(t, is_module=is_module) for t in (end_s - window_s, end_s)
        )
        return SimpleNamespace(uiVal=round(1000 * (joules - before_j) / window_s))

    def sleep(self, time_s):
        self.t_s += 1.05 * time_s

    def watch(self, monkeypatch):
        monkeypatch.setattr(pynvml, "nvmlDeviceGetFieldValues", self.fields)
        return power_scopes.watch_counter(
            None, self.read_j, lambda: int(self.t_s * NS_PER_S), self.sleep
        )


@pytest.mark.parametrize("scope", [PowerScope.GPU, PowerScope.MODULE])
def test_a_steady_load_shows_whose_energy_a_counter_has(monkeypatch, scope):
    module = PlayedModule(1.0, 0.0, counts_module=scope is PowerScope.MODULE)
    assert module.watch(monkeypatch) is scope


@pytest.mark.parametrize("scope", [PowerScope.GPU, PowerScope.MODULE])
@pytest.mark.parametrize("phase_s", [0.0, 0.02, 0.04, 0.06, 0.08])
def test_a_load_in_step_with_the_sensor_never_gives_a_counter_another_scope(
    monkeypatch, scope, phase_s
):
    """As steps of 100 ms do: each instant reading is of the same part of a step."""
    module = PlayedModule(0.07, 0.03, counts_module=scope is PowerScope.MODULE, phase_s=phase_s)
    assert module.watch(monkeypatch) in (scope, None)


def test_a_scope_that_is_found_out_later_leaves_the_other_notes(monkeypatch, tmp_path):
    part = MigDevice("MIG-1", 1, 0)
    monkeypatch.setattr(device_module, "mig_slices", lambda _handle: [part])
    board = variant(counter_is_module=False, plain_is_module=False)
    with opened(monkeypatch, tmp_path, board) as (device,):
        assert device.info.power_scope is PowerScope.GPU
        assert device.info.note == IN_MIG_MODE


def test_until_the_counter_is_watched_a_hopper_counter_covers_the_module(monkeypatch, tmp_path):
    with simulated(monkeypatch, GH200, folder=tmp_path) as machine:
        machine.shared.publish_host(0, machine.now_ns - 60 * NS_PER_S, HOST_W, 0.0)
        proc = write_cpus(tmp_path / "proc", packages=1)
        environ = {"JOULEWISE_SIM": machine.shared.path, "JOULEWISE_PROC": str(proc)}
        (device,) = find(Options(environ=environ, energy_first=True))
        assert device.info.power_scope is PowerScope.MODULE
        assert "cpu0" in device.info.contains
        device.close()


@on("a100")
def test_a_board_of_its_own_reports_the_gpus_power_and_no_part_of_it(device):
    assert device.info.power_scope is PowerScope.GPU
    assert device.info.contains == ()
    for part in (Quantity.GPU_POWER, Quantity.MEMORY_POWER):
        assert isinstance(device.read(part), Unavailable)


def refuse_scopes(monkeypatch, error):
    ask = pynvml.nvmlDeviceGetFieldValues

    def refuse(handle, fields):
        if any(isinstance(field, tuple) for field in fields):
            raise error
        return ask(handle, fields)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetFieldValues", refuse)


REFUSALS = pytest.mark.parametrize(
    "error", [pynvml.NVMLError_NotSupported(), TypeError("not a number")]
)


@REFUSALS
def test_without_scopes_there_is_a_note_that_a_cpu_may_count_twice(monkeypatch, tmp_path, error):
    refuse_scopes(monkeypatch, error)
    with opened(monkeypatch, tmp_path, GH200) as (device,):
        assert device.info.power_scope is None
        assert device.info.contains == ()
        assert "count twice" in device.info.note
        assert isinstance(device.read(Quantity.POWER), Reading)


@REFUSALS
def test_without_scopes_a_gpu_beside_a_grace_cpu_is_assumed_to_be_on_its_module(
    monkeypatch, tmp_path, error
):
    refuse_scopes(monkeypatch, error)
    monkeypatch.setattr(power_scopes, "has_grace", lambda _options: True)
    with opened(monkeypatch, tmp_path, GH200) as (device,):
        assert device.info.power_scope is PowerScope.MODULE
        assert device.info.contains == ("cpu0", "dram0")
        assert "assumed to be those of the module" in device.info.note
        assert isinstance(device.read(Quantity.POWER), Reading)


def test_a_board_before_hopper_has_no_note_of_its_scope(monkeypatch, tmp_path):
    refuse_scopes(monkeypatch, pynvml.NVMLError_NotSupported())
    with opened(monkeypatch, tmp_path, load_board("a100"), host_w=0) as (device,):
        assert device.info.note == ""


GB200 = replace(GH200, architecture=10, compute_capability=(10, 0))


def near_in_pairs(monkeypatch):
    """GPUs 0 and 1 are near the CPUs 0 and 1, GPUs 2 and 3 near 2 and 3, as on a GB200 node."""

    def affinity(handle, words):
        index = pynvml.nvmlDeviceGetIndex(handle)
        return [0b11 if index < 2 else 0b1100] + [0] * (words - 1)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetCpuAffinity", affinity)


@pytest.mark.parametrize("faults", ["", "gpu3:lost"])
def test_each_module_of_two_gpus_counts_once_also_where_a_gpu_is_lost(
    monkeypatch, tmp_path, faults
):
    near_in_pairs(monkeypatch)
    with opened(monkeypatch, tmp_path, *[GB200] * 4, faults=faults, packages=2) as devices:
        infos = [device.info for device in devices]
        assert infos[0].contains == ("gpu1", "cpu0", "dram0")
        assert infos[1].contains == ("gpu0", "cpu0", "dram0")
        lost = {"gpu3"} if faults else set()
        assert ("gpu3" in infos[2].contains) == (not lost)
        inside = find_contained([*infos, CPU0, CPU1], lost)
        counted = {info.key for info in (*infos, CPU0, CPU1)} - inside.keys() - lost
        assert counted == {"gpu0", "gpu2"}


def test_the_power_limit_of_a_module_says_what_it_holds(monkeypatch, tmp_path):
    with opened(monkeypatch, tmp_path, GH200) as (device,):
        assert device.info.limit_scope is PowerScope.GPU
        assert device.controls[ControlKind.POWER_LIMIT].maximum == GH200.limits.maximum_w
        assert device.info.module_limit_w == GH200.module.limit_w


def test_what_a_module_can_draw_is_bound_by_its_own_limit(monkeypatch, tmp_path):
    with opened(monkeypatch, tmp_path, GH200) as (device,):
        assert recorded_device(device, {}).maximum_w == GH200.module.limit_w


def test_a_limit_that_is_the_same_for_gpu_and_module_cannot_be_told_apart(monkeypatch, tmp_path):
    same = replace(GH200, limits=replace(GH200.limits, maximum_w=1000.0, default_w=1000.0))
    with opened(monkeypatch, tmp_path, same) as (device,):
        assert device.info.limit_scope is None


class TestContents:
    """Which CPUs are on a GPU's module."""

    def contents(
        self, monkeypatch, tmp_path, packages, gpu, *, near=None, same_board=(), architecture=10
    ):
        """``near`` are the CPUs that NVML tells, None where it does not.

        They are of this GPU; another one's are told where ``near`` is a list of them by GPU.
        """
        proc = write_cpus(tmp_path / f"proc{packages}{gpu}", packages)

        def affinity(handle, words):
            own = near[handle] if isinstance(near, list) else near if handle == gpu else None
            if own is None:
                raise pynvml.NVMLError_NotSupported
            return [sum(1 << cpu - 64 * i for cpu in own if cpu // 64 == i) for i in range(words)]

        monkeypatch.setattr(pynvml, "nvmlDeviceGetCpuAffinity", affinity)
        count = len(near) if isinstance(near, list) else packages
        monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: count)
        monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)
        monkeypatch.setattr(
            pynvml, "nvmlDeviceOnSameBoard", lambda *pair: set(pair) <= set(same_board)
        )
        options = Options(environ={"JOULEWISE_PROC": str(proc)})
        return module_contents(gpu, gpu, architecture, options)

    @pytest.mark.parametrize("modules", [1, 2, 4])
    def test_each_module_has_the_cpu_that_its_gpu_is_near(self, monkeypatch, tmp_path, modules):
        for gpu in range(modules):
            near = {2 * gpu, 2 * gpu + 1}
            module = self.contents(monkeypatch, tmp_path, modules, gpu, near=near)
            assert set(module.keys) == {f"cpu{gpu}", f"dram{gpu}", "dram0"}
            assert not module.note

    @pytest.mark.parametrize("near", [None, set()])
    def test_where_that_is_unknown_no_cpu_counts_beside_a_module(self, monkeypatch, tmp_path, near):
        module = self.contents(monkeypatch, tmp_path, 2, 1, near=near)
        assert set(module.keys) == {"cpu0", "cpu1", "dram0", "dram1"}
        assert "unknown" in module.note

    def test_two_gpus_of_one_module_contain_each_other(self, monkeypatch, tmp_path):
        module = self.contents(monkeypatch, tmp_path, 2, 0, near={0, 1}, same_board=(0, 1))
        assert "gpu1" in module.keys
        module = self.contents(monkeypatch, tmp_path, 2, 1, near={0, 1}, same_board=(0, 1))
        assert "gpu0" in module.keys

    def test_gpus_on_one_board_near_different_cpus_are_on_different_modules(
        self, monkeypatch, tmp_path
    ):
        near = [{0, 1}, {0, 1}, {2, 3}, {2, 3}]
        board = {"same_board": (0, 1, 2, 3)}
        assert gpus(self.contents(monkeypatch, tmp_path, 2, 0, near=near, **board)) == {"gpu1"}
        assert gpus(self.contents(monkeypatch, tmp_path, 2, 3, near=near, **board)) == {"gpu2"}

    def test_gpus_that_share_a_cpu_in_greater_numbers_are_not_one_module(
        self, monkeypatch, tmp_path
    ):
        near = [{0, 1}] * 4
        assert gpus(self.contents(monkeypatch, tmp_path, 2, 0, near=near)) == set()
        pair = self.contents(monkeypatch, tmp_path, 2, 1, near=near, same_board=(0, 1))
        assert gpus(pair) == {"gpu0"}

    def test_a_hopper_module_has_one_gpu(self, monkeypatch, tmp_path):
        near = [{0, 1}, {0, 1}]
        module = self.contents(
            monkeypatch, tmp_path, 1, 0, near=near, same_board=(0, 1), architecture=9
        )
        assert gpus(module) == set()


def gpus(contents):
    return {key for key in contents.keys if key.startswith("gpu")}

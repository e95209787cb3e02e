"""What an administrator can write, and what each mistake is answered with."""

import pytest

from joulewise.control.service.config import Config, read_config
from joulewise.data import ControlKind, DeviceInfo, Kind
from joulewise.errors import OutOfRangeError, PermissionDeniedError, UsageError

GPU = DeviceInfo("gpu0", Kind.GPU, "Tesla V100-SXM2-16GB", "GPU-2125-ab", "nvidia")
OTHER = DeviceInfo("gpu1", Kind.GPU, "Quadro RTX 6000", "GPU-77", "nvidia")
WHOLE = """
group = "root"
clients = 10
clients_per_user = 2
force = true

[[allow]]
devices = ["gpu0"]
power_limit_w = [150, 200]
sm_clock_mhz = [900, 1200.5]

[[allow]]
devices = ["GPU-2125*"]
power_limit_w = [250, 260]
"""


@pytest.fixture
def config(tmp_path):
    def read(text, group=None):
        path = tmp_path / "guard.toml"
        path.write_text(text)
        return read_config(path, group)

    return read


def test_a_whole_file(config):
    read = config(WHOLE)
    assert (read.group, read.clients, read.clients_per_user, read.force) == ("root", 10, 2, True)
    assert read.allowed[0].ranges == {
        ControlKind.POWER_LIMIT: (150, 200),
        ControlKind.SM_CLOCK: (900, 1200.5),
    }


@pytest.mark.parametrize("value", [150, 200, 250, 260])
def test_what_is_in_one_of_the_ranges_is_allowed(config, value):
    config(WHOLE).check(GPU, ControlKind.POWER_LIMIT, value)


@pytest.mark.parametrize("value", [149.9, 200.1, 249, 261, float("nan")])
def test_what_is_in_none_is_refused_with_the_ranges(config, value):
    with pytest.raises(OutOfRangeError) as refused:
        config(WHOLE).check(GPU, ControlKind.POWER_LIMIT, value)
    assert refused.value.message == f"the service does not set gpu0's power limit to {value:g} W"
    assert refused.value.hint == "it allows 150 to 200 W or 250 to 260 W"


@pytest.mark.parametrize(
    ("device", "control"),
    [(OTHER, ControlKind.POWER_LIMIT), (GPU, ControlKind.MEMORY_CLOCK)],
    ids=str,
)
def test_what_is_not_listed_is_not_changed(config, device, control):
    with pytest.raises(PermissionDeniedError, match=r"ask its administrator to list it in"):
        config(WHOLE).check(device, control, 180)


def test_a_file_that_lists_nothing_allows_nothing(config):
    with pytest.raises(PermissionDeniedError):
        config('group = "root"').check(GPU, ControlKind.POWER_LIMIT, 180)


@pytest.mark.parametrize("like", ["gpu0", "gpu*", "GPU-2125-ab", "GPU-2*", "Tesla V100*"])
def test_a_device_is_known_by_its_key_its_uid_and_its_name(config, like):
    read = config(f'group = "root"\n[[allow]]\ndevices = ["{like}"]\npower_limit_w = [1, 2]')
    read.check(GPU, ControlKind.POWER_LIMIT, 2)
    if like != "gpu*":
        with pytest.raises(PermissionDeniedError):
            read.check(OTHER, ControlKind.POWER_LIMIT, 2)


def test_without_a_file_a_group_is_named_and_the_devices_decide():
    Config("root").check(GPU, ControlKind.MEMORY_CLOCK, 5000)
    assert read_config(None, "root").allowed is None
    with pytest.raises(UsageError, match="no group is named"):
        read_config(None, None)


def test_the_command_line_goes_before_the_file(config):
    assert config('group = "no-such-group"', group="root").group == "root"


ALLOW = 'group = "root"\n[[allow]]\n'


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("group = ", "is not valid TOML"),
        ("", "group must be the name"),
        ("group = 3", "group must be the name"),
        ('group = "no-such-group"', "no group 'no-such-group'"),
        ('group = "nul\\u0000"', "no group"),
        ('group = "root"\ncolour = 1', "colour is unknown"),
        ('group = "root"\nclients = 0', "clients must be a whole number"),
        ('group = "root"\nclients = true', "clients must be a whole number"),
        ('group = "root"\nclients_per_user = 1.5', "clients_per_user must be a whole number"),
        ('group = "root"\nforce = "yes"', "force must be true or false"),
        ('group = "root"\nallow = 1', "allow must be a list"),
        (f'{ALLOW}devices = ["gpu0"]', r"allow\[0\] allows nothing"),
        (f"{ALLOW}power_limit_w = [1, 2]", r"allow\[0\].devices must be a list"),
        (f'{ALLOW}devices = "gpu0"\npower_limit_w = [1, 2]', r"allow\[0\].devices must be a list"),
        (f'{ALLOW}devices = [""]\npower_limit_w = [1, 2]', r"allow\[0\].devices must be a list"),
        (f'{ALLOW}devices = ["a"]\npower_limit_w = 3', r"allow\[0\].power_limit_w must be a range"),
        (
            f'{ALLOW}devices = ["a"]\npower_limit_w = [1]',
            r"allow\[0\].power_limit_w must be a range",
        ),
        (f'{ALLOW}devices = ["a"]\npower_limit_w = [1, inf]', "power_limit_w must be a range"),
        (f'{ALLOW}devices = ["a"]\npower_limit_w = [1, nan]', "power_limit_w must be a range"),
        (
            f'{ALLOW}devices = ["a"]\npower_limit_w = [3, 2]',
            "must go from low to high, not from 3 to 2",
        ),
        (
            f'{ALLOW}devices = ["a"]\npower_limit_w = [-3, 2]',
            "must go from low to high, not from -3 to 2",
        ),
        (f'{ALLOW}devices = ["a"]\npower_limits_w = [1, 2]', r"allow\[0\].power_limits_w is unk"),
    ],
)
def test_a_mistake_is_one_line_with_the_file_and_the_key(config, text, key):
    with pytest.raises(UsageError, match=key) as wrong:
        config(text)
    assert "guard.toml" in wrong.value.message
    assert "\n" not in wrong.value.message


def test_a_file_that_is_not_there_or_no_text(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        read_config(tmp_path / "none.toml", "root")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="is not valid TOML"):
        read_config(binary, "root")


def test_a_group_that_is_missing_can_be_made_with_what_is_shown():
    with pytest.raises(UsageError, match="no group 'no-such-group'") as wrong:
        read_config(None, "no-such-group")
    assert wrong.value.hint == "create it: `sudo groupadd --system no-such-group`"

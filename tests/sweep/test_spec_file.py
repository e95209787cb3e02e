"""Sweeps from a TOML file."""

import re
from pathlib import Path

import pytest

from joulewise.data.sweeps import CPU_LIMIT, MEM_CLOCK, POWER_LIMIT, SM_CLOCK
from joulewise.errors import UsageError
from joulewise.sweep.axes import parse_words
from joulewise.sweep.boards import simulated
from joulewise.sweep.space import resolve
from joulewise.sweep.spec import SimulationSpec, SweepSpec
from joulewise.sweep.spec_file import _KEYS, read
from tests.helpers.paths import ROOT

REFERENCE = ROOT / "docs" / "reference" / "sweep-file.md"


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "bench.toml"
        path.write_text(text)
        return path

    return write


def test_a_benchmark_is_everything_that_options_can_say(file, tmp_path):
    (asked,) = read(
        file("""
        [[benchmark]]
        name = "net"
        command = ["python", "train.py", "--batch", "{batch}", 7]
        cwd = "work"
        power_limit = "150:300:50"
        sm_clock = [900, "unlocked"]
        mem_clock = 877
        cpu_limit = "full"
        constraints = ["batch * power_limit_w < 9999"]
        repeat = 3
        seed = 7
        warm_up = 1
        cool_down = "60s"
        gpu = [0, 1]
        each_gpu = true
        max_slowdown = 1.5
        timeout = 3600
        by = ["edp", "eds:2.0"]
        adaptive = true
        tolerance = 2
        boundary = "node"
        overhead_w = 112
        pue = 1.2
        rate = 20
        hooks = false
        force = true
        on = "ray"
        set = { batch = [32, 64], lr = "0.1:0.3:0.1", amp = [true, false] }
        reference = { batch = 64 }
        environment = { OMP_NUM_THREADS = 4, LR = "{lr}", AMP = "{amp}" }
        """)
    )
    assert asked == SweepSpec(
        name="net",
        command=("python", "train.py", "--batch", "{batch}", "7"),
        cwd=str(tmp_path / "work"),
        axes={
            POWER_LIMIT: "150:300:50",
            SM_CLOCK: "900,unlocked",
            MEM_CLOCK: "877",
            CPU_LIMIT: "full",
            "batch": "32,64",
            "lr": "0.1:0.3:0.1",
            "amp": "true,false",
        },
        reference={"batch": "64"},
        constraints=("batch * power_limit_w < 9999",),
        repeat=3,
        seed=7,
        warm_up=1,
        cool_down="60s",
        gpus=(0, 1),
        each_gpu=True,
        max_slowdown=1.5,
        timeout_s=3600,
        environ={"OMP_NUM_THREADS": "4", "LR": "{lr}", "AMP": "{amp}"},
        on="ray",
        adaptive=True,
        by=("edp", "eds:2.0"),
        tolerance=0.02,
        boundary="node",
        overhead_w=112,
        pue=1.2,
        rate_hz=20,
        hooks=False,
        force=True,
    )
    assert SweepSpec.from_json(asked.as_json()) == asked


def test_what_stands_above_holds_for_all_and_their_own_goes_before(file):
    first, second = read(
        file("""
        repeat = 3
        power_limit = "full"
        environment = { A = "1", B = "1" }
        [[benchmark]]
        command = "python 'my train.py' --fast"
        [[benchmark]]
        name = "other"
        sim = "v100"
        workload = "resnet50"
        run_noise = 1
        power_limit = [150, 300]
        repeat = 5
        environment = { B = "2" }
        """)
    )
    assert first.command == ("python", "my train.py", "--fast")
    assert (first.name, first.repeat, first.axes) == ("bench-1", 3, {POWER_LIMIT: "full"})
    assert first.simulated is None
    assert (second.name, second.repeat, second.axes) == ("other", 5, {POWER_LIMIT: "150,300"})
    assert second.environ == {"A": "1", "B": "2"}
    assert second.simulated == SimulationSpec("v100", "resnet50", run_noise=0.01)


def test_a_file_without_benchmarks_is_one(file):
    (asked,) = read(file('sim = "v100"\nworkload = "resnet50"\npower_limit = "full"'))
    assert asked.name == "bench"
    assert len(resolve(asked, simulated("v100")).settings) == 31


def test_a_list_is_taken_as_it_is_and_text_as_on_the_command_line(file):
    result = r"""
    command = "sh"
    set = { a = ["1:3:1", "x,y", "", 1e-4], b = "1:3:1", c = 'x,"y,z"', d = 5 }
    """
    (asked,) = read(file(result))
    values = {name: parse_words(name, text).values for name, text in asked.axes.items()}
    assert values == {
        "a": ("1:3:1", "x,y", "", "0.0001"),
        "b": ("1", "2", "3"),
        "c": ("x", "y,z"),
        "d": ("5",),
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("repeat = ", "is not a TOML file"),
        ("repat = 3", "repat is unknown (did you mean repeat? "),
        ("powerlimit = 3", "powerlimit is unknown (did you mean power_limit? "),
        ("xyzzy = 3", "xyzzy is unknown (there are adaptive, "),
        ("[[benchmark]]\nxyzzy = 3", "benchmark 1: xyzzy is unknown"),
        ("[benchmark]\nrepeat = 3", "benchmark is not a list of tables"),
        ("benchmark = []", "there is no benchmark"),
        ("benchmark = [1]", "benchmark is not a list of tables"),
        ('repeat = "3"', "repeat is not a whole number"),
        ("repeat = 3.5", "repeat is not a whole number"),
        ("repeat = true", "repeat is not a whole number"),
        ('timeout = "long"', "timeout is not a number of seconds"),
        ("timeout = true", "timeout is not a number of seconds"),
        ("hooks = 1", "hooks is not true or false"),
        ("name = 3", "name is not text"),
        ("command = 3", "command is not a command, as text or a list of texts"),
        ('command = "sh \'a"', "command is not a command line: No closing quotation"),
        ("gpu = ['a']", "gpu is not a list of whole numbers"),
        ("by = [1]", "by is not a list of texts"),
        ("set = 3", "set is not a table of names and their values"),
        ("set = { a = {} }", "set is not a table of names and their values"),
        ("set = { power_limit_w = 3 }", "set is not for limits and clocks: write power_limit = …"),
        ("power_limit = true", "power_limit is not a range"),
        ("power_limit = {}", "power_limit is not a range"),
        ("reference = { a = [1] }", "reference is not a table"),
        ("environment = { A = 1979-05-27 }", "environment is not a table"),
        ('workload = "resnet50"', "workload without sim"),
        ("name = 'a'\n[[benchmark]]\n[[benchmark]]", "all benchmarks have one name"),
        ("[[benchmark]]\nname = 'a'\n[[benchmark]]\nname = 'a'", "two benchmarks are named a"),
    ],
)
def test_invalid_file_is_refused_with_its_name_and_key(file, text, says):
    path = file(text)
    with pytest.raises(UsageError, match=re.escape(says)) as refused:
        read(path)
    assert refused.value.message.startswith(str(path))
    assert refused.value.hint


def test_a_file_that_cannot_be_read_is_said(tmp_path):
    with pytest.raises(UsageError, match=r"cannot read .*none\.toml: No such file"):
        read(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff")
    with pytest.raises(UsageError, match="is not a TOML file"):
        read(tmp_path / "binary.toml")


def test_every_key_is_documented():
    keys = REFERENCE.read_text("utf-8").partition("## Keys")[2].partition("\n## ")[0]
    named = re.findall(r"^\| (`.*?) \|", keys, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(named))) == set(_KEYS)


def test_the_documented_examples_are_sweeps(file):
    page = REFERENCE.read_text("utf-8")
    first, second = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert first == (ROOT / "examples" / "sweep.toml").read_text("utf-8")
    limits, batches = read(file(first))
    assert len(resolve(limits, simulated("v100")).settings) == 4
    assert len(resolve(batches, simulated("v100")).settings) == 5
    (own,) = read(file(second))
    Path(own.cwd).mkdir()
    space = resolve(own, simulated("v100"))
    words = {(each["batch_size"], each["steps"]) for each in space.settings}
    assert words == {("32", "200"), ("64", "100"), ("128", "50")}
    assert len(space.settings) == 6 * 3 * 3
    assert space.reference.as_json() == {
        POWER_LIMIT: 300,
        SM_CLOCK: None,
        "batch_size": "64",
        "steps": "100",
    }

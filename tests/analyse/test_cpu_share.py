"""Which part of the modelled CPU energy the command's share of the busy time stands for."""

import pytest

from joulewise.analyse.run_result import analyse
from joulewise.data import Source
from joulewise.store.manifest import CommandRecord
from tests.helpers.run_directories import PID, START, MadeRun, S, device


def cpu(path, load_pct, cpu_s, source=Source.MODELLED):
    """Ten seconds of four CPUs at 20 W."""
    made = MadeRun(path).fast(device("cpu0", source=source), lambda _: 20)
    made.slow("cpu0", load_pct=lambda _: load_pct)
    command = CommandRecord(PID, ("make",), START, START + 10 * S, 0, cpu_s)
    result = analyse(made.write(host={"cpus": "4"}, commands=(command,)))
    return result.details["cpu"]


def test_the_commands_part_of_what_load_adds(tmp_path):
    found = cpu(tmp_path / "run", 50, 5.0)
    assert found["busy_s"] == pytest.approx(20)
    # 200 J, of which load adds 0.77 x 0.5 to 0.15; a quarter of the busy time
    assert found["command_share_j"] == pytest.approx(200 * 0.385 / 0.535 / 4, rel=0.01)


def test_is_never_more_than_all_of_it(tmp_path):
    found = cpu(tmp_path / "run", 50, 50.0)
    assert found["command_share_j"] == pytest.approx(200 * 0.385 / 0.535, rel=0.01)


@pytest.mark.parametrize(
    ("load_pct", "cpu_s", "source"),
    [(50, None, Source.MODELLED), (0, 1.0, Source.MODELLED), (50, 5.0, Source.MEASURED)],
)
def test_the_share_is_unknown_without_readings(tmp_path, load_pct, cpu_s, source):
    assert cpu(tmp_path / "run", load_pct, cpu_s, source)["command_share_j"] is None

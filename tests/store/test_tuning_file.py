"""tuning.json: damaged, half-written or of a newer version, it is told in a line and no more."""

import json
import random
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from joulewise.analyse.run_result import analyse
from joulewise.analyse.stored_result import write_result
from joulewise.cli import joulewise as cli
from joulewise.data.tuning import TuningEnd, TuningState
from joulewise.report.charts.run.tuning import chart_tried
from joulewise.report.views.live import RunWatch, foretold
from joulewise.report.views.tuning import tuner_state, tuning_view
from joulewise.store.checksums import damaged_files, with_checksum, write_final_checksums
from joulewise.store.layout import TUNING, TUNING_RESERVE
from joulewise.store.manifest import RecorderRecord
from joulewise.store.tuning_file import (
    KILLED_TUNER,
    UnreadableTuningError,
    load_tuning,
    read_tuning,
    reserve_last_tuning,
    write_early_end,
    write_last_tuning,
    write_tuning,
)
from tests.helpers.mounts import mounted_tmpfs
from tests.helpers.run_directories import PID, MadeRun, device
from tests.helpers.written_tunings import ended_tuning, exploring_tuning

ROUNDS, DRAWN_EVERY = 100, 20


@pytest.fixture
def run(tmp_path):
    made = MadeRun(tmp_path / "store" / "20260101-000000-aaaa").fast(device("gpu0"), lambda _: 200)
    made.processes("gpu0", (0, [(PID, "python", True)]))
    path = made.write()
    write_result(path, analyse(path))
    write_tuning(path, ended_tuning())
    return path


def bits_flipped(draw, content):
    damaged = bytearray(content)
    for _ in range(draw.choice((1, 1, 3))):
        damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
    return bytes(damaged)


def cut_off(draw, content):
    return content[: draw.randrange(len(content))]


def value_replaced(draw, content):
    """Another value somewhere, with a checksum that is right: what a faulty writer would write."""
    payload = json.loads(content)
    del payload["crc32"]
    holder, key = payload, draw.choice(list(payload))
    while isinstance(holder[key], dict | list) and holder[key] and draw.random() < 0.9:
        holder = holder[key]
        key = draw.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    values = (None, 0, -1, 0.0, -3.5, 1e300, 10**30, "x", "", [], {}, True, [None], "\x1b[31m")
    holder[key] = draw.choice(values)
    return with_checksum(json.dumps(payload)).encode()


def key_removed(draw, content):
    payload = json.loads(content)
    holder = draw.choice([payload, payload["tried"][0], payload["phases"][1], payload["fitted"][0]])
    del holder[draw.choice(list(holder))]
    payload.pop("crc32", None)
    return json.dumps(payload).encode()


DAMAGES = (bits_flipped, cut_off, value_replaced, key_removed)


@pytest.mark.parametrize("damage", DAMAGES)
def test_whatever_can_be_read_can_be_shown(run, damage):
    draw = random.Random(damage.__name__)
    outcomes = set()
    for round_number in range(ROUNDS):
        write_tuning(run, draw.choice((ended_tuning(), exploring_tuning())), durable=False)
        (run / TUNING).write_bytes(damage(draw, (run / TUNING).read_bytes()))
        tuning = read_tuning(run)
        if tuning is None:
            with pytest.raises(UnreadableTuningError, match=TUNING):
                load_tuning(run)
            outcomes.add("refused")
            continue
        tuning_view(tuning)
        tuner_state(tuning)
        for chart in chart_tried(tuning):
            if round_number % DRAWN_EVERY == 0:  # Altair is slow
                chart.spec()
        outcomes.add("shown")
    assert "refused" in outcomes
    assert ("shown" in outcomes) == (damage in {value_replaced, key_removed})


def test_half_of_it_is_a_line_in_every_verb(run, tmp_path):
    content = (run / TUNING).read_bytes()
    (run / TUNING).write_bytes(content[: len(content) // 2])
    store = ["--store", str(run.parent)]

    def ran(*arguments):
        result = CliRunner().invoke(cli, [*store, *arguments])
        assert result.exit_code == 0, result.output
        return result

    shown = ran("show", "last").output
    assert shown.count(TUNING) == 1
    assert f"warning: {TUNING} is damaged" in shown
    assert TUNING not in ran("ls").output  # which has nothing of it
    assert TUNING not in ran("export", "last", "-o", str(tmp_path / "trace.csv")).output
    page = ran("report", "last", "-o", "-")
    assert page.stdout.count(f"{TUNING} is damaged") == 1
    assert page.stderr.count(f"{TUNING} is damaged") == 1
    assert f"{TUNING} is damaged" in ran("report", "last", "--json", "-").stderr
    lines = list(foretold(RunWatch(run).look()))
    assert [line for line in lines if TUNING in line] == lines[:1]
    assert len(lines[0].splitlines()) == 1


def test_a_file_that_was_deleted_is_missed(run):
    write_final_checksums(run)
    (run / TUNING).unlink()
    for verb in (("show", "last"), ("report", "last", "--json", "-")):
        ran = CliRunner().invoke(cli, ["--store", str(run.parent), *verb])
        assert ran.exit_code == 0, ran.output
        assert ran.stderr.count(f"warning: {TUNING} is gone") == 1
    assert read_tuning(run) is None
    assert not damaged_files(run)  # the energy is not affected


def test_a_newer_version_says_so(run):
    write_tuning(run, replace(ended_tuning(), format=7))
    with pytest.raises(UnreadableTuningError, match="newer joulewise"):
        load_tuning(run)
    assert read_tuning(run) is None


def test_what_was_written_is_read(run):
    assert load_tuning(run) == ended_tuning()
    (run / TUNING).unlink()
    assert load_tuning(run) is None


@pytest.fixture
def recorded(tmp_path):
    """A run in progress."""
    made = MadeRun(tmp_path / "20260101-000000-bbbb").fast(device("gpu0"), lambda _: 200)
    return made.write(state="recording", recorder=RecorderRecord.of_this_process())


def test_a_run_in_progress_is_read_again_when_it_changes(recorded):
    run = recorded
    write_tuning(run, exploring_tuning())
    watch = RunWatch(run)
    assert watch.look().tuner.startswith("tuning: exploring, 34 steps, now 250 W, SM 900 MHz")
    write_tuning(run, ended_tuning())
    assert watch.look().tuner.startswith("tuning has ended: 200 W, SM 1200 MHz saves 24.0")
    (run / TUNING).unlink()
    assert watch.look().tuner == ""


def test_the_end_of_a_tuner_that_was_killed_is_noted_by_another(run):
    write_tuning(run, exploring_tuning())
    for known in (None, True, None):  # what was once seen to be back stays so
        write_early_end(run, TuningEnd(4.5, KILLED_TUNER, known))
    tuning = load_tuning(run)
    assert tuning.state is TuningState.ENDED
    assert tuning.early_end == TuningEnd(4.5, KILLED_TUNER, True)
    assert (tuning.reason, tuning.phases[-1].start_s) == (KILLED_TUNER, 4.5)
    assert tuning_view(tuning).finding == "Nothing was chosen"


def test_an_end_that_the_tuner_noted_itself_is_kept(run):
    write_early_end(run, TuningEnd(99.0, KILLED_TUNER))
    assert load_tuning(run) == ended_tuning()


def test_a_tuner_that_was_killed_with_its_run_has_ended(run):
    write_tuning(run, exploring_tuning())
    tuning = load_tuning(run)
    assert tuning.state is TuningState.ENDED
    assert tuning.early_end == TuningEnd(exploring_tuning().phases[-1].end_s, KILLED_TUNER)
    write_result(run, analyse(run))
    now = RunWatch(run).look()
    assert now.tuner.startswith("tuning ended after 3.00 s: the tuner was killed; ")
    shown = CliRunner().invoke(cli, ["--store", str(run.parent), "show", "last"])
    assert "now: exploring" not in shown.output
    assert "ended after 3.00 s" in " ".join(shown.output.split())
    listed = CliRunner().invoke(cli, ["--store", str(run.parent), "ls"])
    assert "tuning ended early" in listed.output


def test_the_tuner_of_a_run_that_is_recorded_goes_on(recorded):
    write_tuning(recorded, exploring_tuning())
    assert load_tuning(recorded) == exploring_tuning()


@pytest.fixture
def full_disk(run, tmp_path):
    """A run in which tuning goes on, and a disk that has become full since."""
    small = tmp_path / "small"
    small.mkdir()
    with mounted_tmpfs(small, "size=1m") as disk:
        full = Path(shutil.copytree(run, disk / run.name))
        write_tuning(full, exploring_tuning())
        reserve_last_tuning(full)
        with (disk / "filler").open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))
        assert shutil.disk_usage(disk).free == 0
        yield full


def test_a_full_disk_takes_how_the_tuning_ended(full_disk):
    write_last_tuning(full_disk, ended_tuning())
    assert load_tuning(full_disk) == ended_tuning()
    assert not (full_disk / TUNING_RESERVE).exists()
    with suppress(OSError):  # the settings are back: there is no room for that
        write_last_tuning(full_disk, ended_tuning())
    assert load_tuning(full_disk) == ended_tuning()


def test_a_full_disk_takes_the_end_of_a_tuner_that_was_killed(full_disk):
    write_early_end(full_disk, TuningEnd(4.5, "it failed", True))
    assert load_tuning(full_disk).early_end == TuningEnd(4.5, "it failed", True)

"""The list of runs: a line each, filters, and what is no run."""

import io
import json
import shlex
import shutil

import pytest
from rich.console import Console

from joulewise.data import Source
from joulewise.report.terminal.runs import draw
from joulewise.report.views.listings import listing
from joulewise.store.layout import LIVE, MANIFEST, RESULT
from joulewise.store.runs import new_run

OLD, NEW = "20261101-120000-aaaa", "20261116-003512-bbbb"
# First lines of a result.json in which something is of another kind.
_NO_RESULT = (
    '"time_s": [], "energy_j": {"total": null},',
    '"time_s": 1.0, "energy_j": {"total": 3},',
    '"time_s": 1.0, "energy_j": {"total": {}},',
    '"time_s": 1.0, "energy_j": {"total": null}, "counted": 3,',
)


@pytest.fixture
def two(make_run):
    make_run(OLD, name="old", tags=("a", "b"), group="7", wall_start_ns=1_793_534_400 * 10**9)
    make_run(NEW, name="new", watts=500.0, exit_code=3, wall_start_ns=1_794_790_000 * 10**9)


@pytest.mark.usefixtures("two")
class TestTwoRuns:
    def test_a_line_each_the_newest_last(self, joulewise):
        ran = joulewise("ls")
        assert ran.stderr == ""
        header, old, new = ran.stdout.splitlines()
        assert " ".join(header.split()) == "run name started ended time energy error command"
        assert old.split()[:2] == [OLD, "old"]
        assert old.split()[4:9] == ["finished", "10.0", "s", "2.20", "kJ"]
        assert " failed (exit 3) " in new
        assert new.endswith("python train.py")

    @pytest.mark.parametrize(
        ("terms", "found"),
        [
            ("name=old", [OLD]),
            ("name=o*", [OLD]),
            ("name!=old", [NEW]),
            ("tag=b", [OLD]),
            ("tag=c", []),
            ("group=7", [OLD]),
            ("state=complete", [OLD, NEW]),
            ("energy>3kJ", [NEW]),
            ("energy<=1Wh", [OLD]),
            ("energy>3000000mJ energy>1µJ energy>1uJ", [NEW]),
            ("time>9000ms", [OLD, NEW]),
            ("state=comp*", [OLD, NEW]),
            ("time>9s time<1min", [OLD, NEW]),
            ("exit=3", [NEW]),
            ("since=2026-11-10", [NEW]),
            ("until=2026-11-10", [OLD]),
            ("since=2026-11-10 energy<3kJ", []),
            ("'command=python train.py'", [OLD, NEW]),
        ],
    )
    def test_filters(self, joulewise, terms, found):
        ran = joulewise("ls", "--filter", terms, "--json", "-")
        assert [run["id"] for run in json.loads(ran.stdout)["runs"]] == found

    def test_several_filters_must_all_hold(self, joulewise):
        ran = joulewise("ls", "--filter", "tag=a", "--filter", "name=new", "--json", "-")
        assert json.loads(ran.stdout)["runs"] == []

    def test_what_json_reports(self, joulewise):
        (run, _) = json.loads(joulewise("ls", "--json", "-").stdout)["runs"]
        assert run["id"] == OLD
        assert run["tags"] == ["a", "b"]
        assert run["time_s"] == 10
        assert run["energy_j"]["total"]["value"] == pytest.approx(2200, rel=0.02)
        assert run["energy_j"]["total"]["source"] == "mixed"

    def test_nothing_passes(self, joulewise):
        ran = joulewise("ls", "--filter", "name=nobody")
        assert ran.stdout == ""
        assert ran.stderr.endswith("that match the filter\n")

    def test_what_is_no_run_has_a_line_of_its_own(self, joulewise, store):
        (store / "foreign").mkdir()
        (store / "notes.txt").write_text("mine")
        for name, text in (("cut", '{"id": "x"'), ("other", '{"name": "npm"}'), ("bin", "\xff\0")):
            (store / name).mkdir()
            (store / name / MANIFEST).write_text(text, encoding="latin-1")
        ran = joulewise("ls")
        assert ran.returncode == 0
        assert ran.stderr == ""
        lines = ran.stdout.splitlines()
        assert len(lines) == 3 + 4
        assert all(" is not a run that can be read: " in line for line in lines[3:])
        assert NEW in lines[2]

    @pytest.mark.parametrize(
        "damage",
        [
            *("", "{", "{}", "[]", "null", '{"energy_j": 7}', '{"format": 1, "energy_j": 7}'),
            *(f'{{"format": 1, {payload}\n' for payload in _NO_RESULT),
        ],
    )
    def test_a_damaged_result_is_none(self, joulewise, store, damage):
        (store / NEW / RESULT).write_text(damage)
        ran = joulewise("ls")
        assert ran.returncode == 0
        assert ran.stdout.splitlines()[2].split()[-3] == "-"


@pytest.mark.parametrize(
    ("terms", "word"),
    [
        ("colour=red", "no field 'colour'"),
        ("energy", "a field, an operator and a value"),
        ("energy>many", "'many' is not an energy"),
        ("energy>5mj", "'5mj' is not an energy: mJ or MJ?"),
        ("energy>5mWH", "mWh or MWh?"),
        ("energy>3min", "'3min' is not an energy"),
        ("energy>nan", "'nan' is not an energy"),
        ("energy<inf", "'inf' is not an energy"),
        ("energy>-5", "'-5' is not an energy"),
        ("time<1e400", "'1e400' is not a time"),
        ("time>=-3s", "'-3s' is not a time"),
        ("exit=nan", "'nan' is not an exit status"),
        ("exit=1.5", "'1.5' is not an exit status"),
        ("until=0001-01-01T00:00+14:00", "is not a date"),
        ("since=yesterday", "'yesterday' is not a date"),
        ("state=done", "a state is one of recording, complete, stopped by budget, stopped, killed"),
        ("name>b", "takes no >"),
        ("name='x", "quotation"),
    ],
)
def test_a_bad_filter_is_two_lines(joulewise, terms, word):
    ran = joulewise("ls", "--filter", terms)
    assert ran.returncode == 2
    assert ran.stderr.startswith("joulewise: cannot read the filter ")
    assert word in ran.stderr
    assert ran.stderr.count("\n") == 2


def test_a_run_that_was_killed(joulewise, make_run):
    make_run(OLD, result=False, state="recording", exit_code=None, monotonic_end_ns=None)
    line = joulewise("ls").stdout.splitlines()[1]
    assert "killed" in line
    (run,) = json.loads(joulewise("ls", "--json", "-").stdout)["runs"]
    assert (run["state"], run["energy_j"]) == ("killed", {"total": None})


class TestEnergyThatIsNotComputed:
    KILLED = {"result": False, "state": "recording", "exit_code": None, "monotonic_end_ns": None}  # noqa: RUF012

    def test_its_command_is_reported_and_does_it(self, joulewise, make_run, store):
        make_run(OLD, **self.KILLED)
        said, command = joulewise("ls").stderr.splitlines()
        assert said == f"joulewise: the energy of {OLD} is not computed yet"
        assert command == f"  run: joulewise --store {shlex.quote(str(store))} show {OLD}"
        joulewise("show", OLD)
        listed = joulewise("ls")
        assert " kJ " in listed.stdout
        assert listed.stderr == ""

    def test_of_several_the_newest_is_named(self, joulewise, make_run):
        make_run(OLD, **self.KILLED)
        make_run(NEW, **self.KILLED)
        said, command = joulewise("ls").stderr.splitlines()
        assert said == "joulewise: the energy of 2 runs is not computed yet"
        assert command.endswith(f" show {NEW} # the same for each")

    def test_a_program_that_reads_json_is_not_reported(self, joulewise, make_run):
        make_run(OLD, **self.KILLED)
        assert joulewise("ls", "--json", "-").stderr == ""

    def test_energy_that_no_device_reported_is_not_computed_again(self, joulewise, make_run):
        result = make_run(OLD) / RESULT
        first, rest = result.read_text().split("\n", 1)
        payload = json.loads(first.rstrip(",") + "}")
        payload["energy_j"] = dict.fromkeys(payload["energy_j"])
        del payload["head_crc32"]
        result.write_text(json.dumps(payload)[:-1] + ",\n" + rest)
        assert joulewise("ls").stderr == ""


def test_an_empty_store(joulewise, store):
    ran = joulewise("ls")
    assert (ran.returncode, ran.stdout) == (0, "")
    assert ran.stderr == f"no runs in {store}; to make one: joulewise run -- CMD...\n"
    in_json = joulewise("ls", "--json", "-")
    whole = {"runs": [], "skipped": [], "total": 0, "page": 1, "pages": 1}
    assert json.loads(in_json.stdout) == whole
    assert in_json.stderr == ran.stderr


@pytest.mark.parametrize("text", ["{}", "[]", "null", '{"format": 1}', '{"format": 1, "id": []}'])
def test_what_is_no_manifest_is_one_line_in_every_verb(joulewise, store, tmp_path, text):
    (store / NEW).mkdir(parents=True)
    (store / NEW / MANIFEST).write_text(text)
    assert len(joulewise("ls").stdout.splitlines()) == 1
    place = str(tmp_path / "out")
    for verb in (["show"], ["export", "-o", place], ["report", "-o", place]):
        ran = joulewise(*verb, "last")
        said, hint = ran.stderr.splitlines()
        assert ran.returncode == 125
        assert said.startswith(f"joulewise: {store / NEW} is not a run that can be read: ")
        assert "__init__" not in said
        assert hint.startswith("  joulewise ls lists those that can")


@pytest.mark.parametrize("verb", [["ls"], ["show", "last"], ["rm", "--yes", "last"]])
@pytest.mark.parametrize("why", ["Not a directory", "Too many levels of symbolic links"])
def test_a_store_that_cannot_be_read_is_not_called_empty(joulewise, store, verb, why):
    store.write_text("mine") if why == "Not a directory" else store.symlink_to(store)
    ran = joulewise(*verb)
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr == (
        f"joulewise: cannot read {store}: {why}\n"
        "  name another with --store DIR or $JOULEWISE_STORE\n"
    )


class TestANarrowTerminal:
    @pytest.fixture
    def lines(self, make_run, store):
        make_run(OLD, name="a name of forty letters, which is a lot!")
        make_run(NEW, state="stopped", exit_code=143, notes=({"code": "recorder_ended"},))

        def lines(width):
            file = io.StringIO()
            console = Console(file=file, width=width, force_terminal=True, color_system=None)
            draw(list(listing(store)), [], console)
            return file.getvalue().splitlines()

        return lines

    @pytest.mark.parametrize("width", [70, 80, 100])
    def test_words_make_room_for_figures(self, lines, width):
        header, old, new, *_ = lines(width)
        assert header.split() == ["run", "name", "ended", "time", "energy", "command"]
        assert (
            " 10.0 s  2.20 kJ  python t" in old
        )  # what is cut off the command ends in an ellipsis
        assert " a name" in old
        assert " killed (s" in new

    def test_a_command_that_is_cut_shows_so(self, lines):
        old = lines(80)[1]
        assert old.endswith("…")
        assert len(old) <= 80
        assert lines(200)[1].endswith("python train.py")

    def test_no_figure_is_cut_in_two(self, lines):
        for width in range(30, 120):
            header, old, _, *said = lines(width)
            missing = [it for it in ("started", "error", "time", "energy") if it not in header]
            assert all(it in " ".join(said) for it in missing), width
            assert ("2.20 kJ" in old) == ("energy" in header), width
            assert ("10.0 s" in old) == ("time" in header), width
            assert max(map(len, (header, old))) <= width
        assert "energy" in lines(40)[0]


def test_hostile_names(joulewise, make_run):
    make_run(OLD, name="\x1b[31mred[bold]\n", spans=False)
    ran = joulewise("ls")
    assert "\x1b" not in ran.stdout
    assert r"\x1b[31mred[bold]\n" in ran.stdout
    assert len(ran.stdout.splitlines()) == 2


def test_another_encoding(joulewise_alone, make_run):
    make_run(OLD, name="é")
    ran = joulewise_alone("ls", PYTHONIOENCODING="ascii")
    assert ran.returncode == 0
    assert "+/-" in ran.stdout


def test_a_run_that_has_no_command_yet(joulewise, store):
    run = new_run(store)
    ran = joulewise("ls")
    assert ran.returncode == 0
    assert run.name in ran.stdout
    assert "recording" in ran.stdout
    assert ran.stderr == ""  # its recorder will compute it


class TestPages:
    IDS = tuple(f"20261101-12000{number}-aaaa" for number in range(5))

    @pytest.fixture(autouse=True)
    def five(self, make_run, store):
        first = make_run(self.IDS[0], name="a")
        for run_id in self.IDS[1:]:
            shutil.copytree(first, store / run_id)
            path = store / run_id / MANIFEST
            payload = json.loads(path.read_text().replace(self.IDS[0], run_id))
            del payload["crc32"]
            path.write_text(json.dumps(payload))

    def listed(self, ran):
        return [line.split()[0] for line in ran.stdout.splitlines()[1:]]

    def test_the_newest_are_shown_and_how_to_see_more(self, joulewise, store):
        ran = joulewise("ls", "--limit", "2")
        assert self.listed(ran) == list(self.IDS[3:])
        said, hint = ran.stderr.splitlines()
        assert said == "joulewise: 2 of 5 runs, page 1 of 3"
        again = f"joulewise --store {shlex.quote(str(store))}"
        assert hint == f"  run: {again} ls --limit 2 --page 2 # older runs, or --all"

    def test_the_last_page_has_the_oldest(self, joulewise):
        ran = joulewise("ls", "--limit", "2", "--page", "3", "--filter", "name=a")
        assert self.listed(ran) == [self.IDS[0]]
        assert ran.stderr.splitlines()[1].endswith(" ls --filter name=a --all # all of them")

    def test_all(self, joulewise):
        ran = joulewise("ls", "--all")
        assert self.listed(ran) == list(self.IDS)
        assert ran.stderr == ""

    def test_a_page_that_is_not_there(self, joulewise):
        ran = joulewise("ls", "--limit", "2", "--page", "4")
        assert (ran.returncode, ran.stdout) == (0, "")
        assert ran.stderr.startswith(
            "joulewise: there is no page 4\n  give --page a number from 1 to 3\n"
        )

    def test_all_and_a_page_at_once(self, joulewise):
        ran = joulewise("ls", "--all", "--page", "2")
        assert ran.returncode == 2
        assert ran.stderr.count("\n") == 2

    def test_json_has_the_page_too(self, joulewise):
        payload = json.loads(joulewise("ls", "--limit", "2", "--page", "2", "--json", "-").stdout)
        assert [run["id"] for run in payload["runs"]] == list(self.IDS[1:3])
        assert (payload["total"], payload["page"], payload["pages"]) == (5, 2, 3)


@pytest.mark.parametrize(
    ("counted", "source", "shown"),
    [(True, "GPU simulated, others not", "simulated, modelled"), (False, "modelled", "modelled")],
)
def test_the_source_is_that_of_show(joulewise, make_run, counted, source, shown):
    """It was simulated, too, where the simulated GPU was not in the total."""
    run = make_run(OLD, source=Source.SIMULATED, result=False)
    made = [(4242, "python", counted)]
    sightings = [
        {
            "t_ns": 1_000 * 10**9,
            "device": key,
            "processes": [{"pid": pid, "name": name, "ours": ours} for pid, name, ours in held],
        }
        for key, held in (("gpu0", made), ("gpu1", []))
    ]
    (run / "processes.jsonl").write_text("".join(json.dumps(it) + "\n" for it in sightings))
    assert f"  {shown}\n" in joulewise("show", OLD).stdout
    line = joulewise("ls").stdout.splitlines()[1]
    assert f"  {source}  python" in line


def test_a_run_that_is_recorded_shows_its_joules_so_far(joulewise, store):
    run = new_run(store)
    energy = {"value": 1234.0, "error": 12.0, "error_sampling": 12.0, "error_gain": 0.0}
    energy |= {"source": "measured", "at_least": False}
    live = {"t_ns": 1, "time_s": 4.5, "energy_j": {"total": energy}, "counted": ["gpu0"]}
    (run / LIVE).write_text(json.dumps(live))
    line = joulewise("ls").stdout.splitlines()[1]
    assert "recording  4.50 s  1.23 kJ" in line
    (payload,) = json.loads(joulewise("ls", "--json", "-").stdout)["runs"]
    assert (payload["state"], payload["energy_j"]["total"]["value"]) == ("recording", 1234.0)


def test_thousands_that_cannot_be_read_do_not_hide_the_runs(joulewise, store):
    for number in range(25):
        (store / f"foreign-{number:02d}").mkdir(parents=True)
    lines = joulewise("ls").stdout.splitlines()
    assert len(lines) == 21
    assert lines[-1] == "and 5 more that cannot be read; --json lists all"
    assert len(json.loads(joulewise("ls", "--json", "-").stdout)["skipped"]) == 25

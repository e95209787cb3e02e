"""`joulewise job ls`, `show`, `export` and `forget`."""

import csv
import io
import json

import pytest

from tests.helpers.run_processes import runs
from tests.helpers.sample_pages import embedded_data
from tests.optimise.recurring.job_runs import NEW, JobRuns


@pytest.fixture(scope="module")
def recurred(tmp_path_factory):
    """A job whose default takes five epochs, and a smaller value one; both of 0.3 s."""
    job = JobRuns(tmp_path_factory.mktemp("job"))
    environ = {"EPOCHS": json.dumps({"16": 5, "8": 1, "32": 2}), "EPOCH_S": "0.3"}
    for words in (NEW, (), ()):
        assert job.run(*words, environ=environ).returncode == 0
    return job


def test_ls_has_the_best_and_what_it_saves(recurred):
    (line,) = [x for x in recurred.verb("ls").stdout.splitlines() if "nightly" in x]
    assert "batch_size 8" in line
    (entry,) = json.loads(recurred.verb("ls", "--json", "-").stdout)["jobs"]
    assert (entry["job"], entry["recurrences"], entry["tries"]) == ("nightly", 3, 3)
    assert entry["best"] == {"batch_size": 8}
    assert 0 < entry["cost"] < entry["default_cost"]
    assert entry["saving"] is None  # each was tried once


def test_show_has_the_tries_and_the_definition(recurred):
    assert "batch_size 8 costs" in recurred.verb("show", "nightly").stdout
    told = json.loads(recurred.verb("show", "nightly", "--json", "-").stdout)
    assert told["values"] == [8, 16, 32]
    assert told["default"] == {"batch_size": 16}
    assert [one["settings"]["batch_size"] for one in told["history"]] == [16, 8, 32]
    assert [one["epochs"] for one in told["history"]] == [5, 1, 2]
    (beliefs,) = told["beliefs"].values()
    assert beliefs == []  # this policy has none


def test_report_writes_a_page_that_opens_with_the_saving(recurred):
    """Each value was tried once, too seldom to know the default; this policy believes nothing."""
    path = recurred.folder / "job.html"
    assert "wrote" in recurred.verb("report", "nightly", "-o", str(path)).stderr
    data = embedded_data(path.read_text())["result"]
    assert data["job"] == "nightly"
    history = json.loads(recurred.verb("show", "nightly", "--json", "-").stdout)["history"]
    assert [one["key"] for one in data["history"]] == [one["key"] for one in history]
    paid = sum(one["cost"] for one in history) / 3
    assert data["report"]["mean_cost"]["mean"] == pytest.approx(paid)
    assert data["report"]["saving_so_far"] is None
    assert "tried too seldom" in path.read_text()


@pytest.mark.parametrize("form", ["csv", "json"])
def test_export_has_a_row_for_each_try(form, recurred):
    written = recurred.verb("export", "nightly", "--format", form).stdout
    rows = json.loads(written) if form == "json" else list(csv.DictReader(io.StringIO(written)))
    assert [int(row["settings.batch_size"]) for row in rows] == [16, 8, 32]
    assert {row["status"] for row in rows} == {"reached"}
    assert sorted(row["run"] for row in rows) == [run.name for run in runs(recurred.store)]


def test_export_writes_a_file(recurred):
    path = recurred.folder / "tries.csv"
    assert recurred.verb("export", "nightly", "--out", str(path)).stdout == ""
    assert path.read_text().startswith("key,")
    assert recurred.verb("export", "nightly", "--out", str(recurred.folder)).returncode == 2


@pytest.mark.parametrize("verb", ["show", "export", "forget"])
def test_an_unknown_job_is_one_line_and_a_hint(verb, recurred):
    ran = recurred.verb(verb, "nigthly")
    assert (ran.stdout, ran.returncode) == ("", 2)
    assert "did you mean nightly?" in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 2


def test_an_unknown_verb_is_refused(recurred):
    ran = recurred.verb("runn")
    assert ran.returncode == 2
    assert "did you mean run?" in ran.stderr


def test_without_a_verb_its_help_is_shown_as_by_joulewise_itself(job):
    ran = job.verb()
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("Usage: ")
    assert "export" in ran.stdout


def test_forget_keeps_the_runs(job):
    assert job.run(*NEW, environ={"EPOCHS": json.dumps({"16": 1})}).returncode == 0
    refused = job.verb("forget", "nightly")
    assert (refused.returncode, "add --yes" in refused.stderr) == (2, True)
    assert job.verb("forget", "nightly", "--yes").returncode == 0
    assert json.loads(job.verb("ls", "--json", "-").stdout) == {"jobs": []}
    assert len(runs(job.store)) == 1
    assert job.run().returncode == 2  # it is new again


def test_without_a_store_there_are_no_jobs(job):
    ran = job.verb("ls")
    assert (ran.stdout, ran.returncode) == ("", 125)
    assert "there is no job store" in ran.stderr
    assert not job.store.exists()

"""What a job is, by its options and by what is stored."""

import pytest

from joulewise.errors import UsageError
from joulewise.optimise.recurring.job_definition import (
    JobRequest,
    define_job,
    describe_changes,
    parse_values,
)

COMMAND = ("train", "--batch", "{batch_size}")
NEW = JobRequest("nightly", "batch_size=8,16,32", "batch_size=16", "val_acc>=0.65", 100)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("b=8,16", (8, 16)),
        ("b=16,8", (8, 16)),
        (" b = 8 , 16 ", (8, 16)),
        ("b=8", (8,)),
        ("b=40000", (40000,)),
        ("b=8,16,…,128", (8, 16, 32, 64, 128)),
        ("b=8,16,...,32", (8, 16, 32)),
        ("b=4,12,...,108", (4, 12, 36, 108)),
        ("b=8,16,...,1024", (8, 16, 32, 64, 128, 256, 512, 1024)),
        ("b=10,20,30,...,50", (10, 20, 30, 40, 50)),
        ("b=8,12,...,20", (8, 12, 16, 20)),
        ("b=96,48,24", (24, 48, 96)),
        ("b=2,8,16,...,64", (2, 8, 16, 32, 64)),
    ],
)
def test_values(text, expected):
    found = parse_values(text)
    assert (found.name, found.values) == ("b", expected)
    assert not found.is_open


def test_a_set_without_an_end_doubles():
    found = parse_values("b=24:max")
    assert found.values[:3] == (24, 48, 96)
    assert found.is_open


@pytest.mark.parametrize("text", ["16384,32768,65536", "8,16,...,65536"])
def test_a_list_is_no_set_without_an_end_wherever_it_ends(text):
    assert not parse_values(f"b={text}").is_open


def test_whether_a_set_has_an_end_can_be_changed():
    new = JobRequest("nightly", "b=16384:max", "b=16384", "val_acc>=0.65", 100)
    stored = define_job(new, ("{b}",), None, "usual")
    assert stored.is_open
    assert define_job(JobRequest("nightly"), ("{b}",), stored, "usual") == stored
    listed = JobRequest("nightly", "b=16384,32768,65536")
    changed = define_job(listed, ("{b}",), stored, "usual")
    assert not changed.is_open
    (change,) = describe_changes(stored, changed)
    assert "values is 16384, 32768, 65536 from now on, and was 16384:max" in change


def test_the_expression_of_the_metric_is_stored_until_it_is_taken_back():
    pattern = "acc=(?P<value>.*)"
    words = (NEW.values, NEW.default, NEW.target, NEW.max_epochs)
    stored = define_job(JobRequest("j", *words, metric_pattern=pattern), COMMAND, None, "usual")
    assert define_job(JobRequest("j"), COMMAND, stored, "usual").metric_pattern == pattern
    back = define_job(JobRequest("j", metric_pattern=""), COMMAND, stored, "usual")
    assert back.metric_pattern is None
    assert "metric pattern is none from now on" in describe_changes(stored, back)[0]


def test_bytes_that_are_no_text_are_refused():
    words = (NEW.values, NEW.default, NEW.target, NEW.max_epochs)
    with pytest.raises(UsageError, match="not of Unicode"):
        define_job(JobRequest("j", *words, metric_pattern="\udcff"), COMMAND, None, "usual")


@pytest.mark.parametrize(
    "text",
    ["b", "b=", "=8", "8,16", "b=8,,16", "b=0,8", "b=-8", "b=8,8", "b=1e3", "b=8:16", "b=x:max",
     "b=8,...,16", "b=8,16,...", "b=8,16,...,100", "b=16,8,...,4", "b c=8",
     "b=8,12,...,1000001", "b=8,12,...,15", "b=8,12,...,12", "b=8,8,...,16", "b=8,16,...,8",
     "b=8,16,..,64", "b=8,16,...,16", "b=8_16", "b=+8", "b=8.0", "b=-8,8", "b=0:max", "b=-8:max",
     "b=40000:max", "b=8:MAX:", "b=max", "b=" + "9" * 5000],
)  # fmt: skip
def test_what_is_no_set_of_values(text):
    with pytest.raises(UsageError):
        parse_values(text)


@pytest.mark.parametrize("text", ["b=8,16,...,1000", "b=10,20,...,50"])
def test_a_factor_that_misses_the_last_value_is_not_taken_for_steps(text):
    with pytest.raises(UsageError, match="by the factor 2") as refused:
        parse_values(text)
    assert "three values" in refused.value.hint


@pytest.mark.parametrize(
    "text", ["b=1,2,3,...,1000000000000", "b=" + ",".join(map(str, range(1, 1000)))]
)
def test_more_values_than_a_policy_can_learn_are_refused(text):
    with pytest.raises(UsageError, match="more than the 100"):
        parse_values(text)


def test_a_new_job_needs_all_that_has_no_usual_value():
    with pytest.raises(UsageError, match="--target, --max-epochs are missing"):
        define_job(JobRequest("j", "b=8,16", "b=8"), ("{b}",), None, "usual")


def test_what_is_left_out_is_as_stored():
    stored = define_job(NEW, COMMAND, None, "usual")
    assert (stored.eta, stored.policy, stored.seed) == (0.5, "usual", 0)
    assert define_job(JobRequest("nightly"), COMMAND, stored, "other") == stored
    changed = define_job(JobRequest("nightly", eta=1.0, seed=7), COMMAND, stored, "usual")
    assert (changed.eta, changed.seed, changed.target) == (1.0, 7, stored.target)


def test_the_default_is_one_of_the_values_of_this_parameter():
    for default in ("batch_size=17", "16", "width=16", "batch_size=large"):
        with pytest.raises(UsageError):
            define_job(JobRequest("j", NEW.values, default, NEW.target, 5), COMMAND, None, "usual")


@pytest.mark.parametrize("command", [("train",), ("train", "{batch}", "{batch_size}")])
def test_the_command_uses_the_parameter_and_no_other(command):
    with pytest.raises(UsageError):
        define_job(NEW, command, None, "usual")

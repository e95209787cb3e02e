import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.errors import JoulewiseError, UsageError
from joulewise.metrics.metric import Metric, Reference, default_metrics, parse

REFERENCE = Reference(time_s=100.0, energy_j=20_000.0, max_power_w=300.0)
AMOUNTS = st.floats(1e-3, 1e9)
ANY = st.sampled_from(["energy", "time", "edp", "ed2p", "eds:1.5", "eds:2.0", "cost:0.5"])


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("energy", 15_000.0),
        ("time", 120.0),
        ("edp", 1_800_000.0),
        ("ed2p", 216_000_000.0),
        ("eds:2.0", 0.5 * 0.75 + 0.5 * 1.2),
        ("eds:1.5", 0.75 / 3 + 1.2 / 1.5),
        ("cost:0.5", 0.5 * 15_000 + 0.5 * 300 * 120),
        ("cost:1", 15_000.0),
        ("cost:0", 36_000.0),
        ("slowdown:1.2", 15_000.0),
        ("slowdown:1.1", np.inf),
    ],
)
def test_a_rule_is_its_formula(text, score):
    assert parse(text).score(120.0, 15_000.0, REFERENCE) == pytest.approx(score)


def test_a_rule_takes_many_at_once():
    time_s, energy_j = np.array([100.0, 120.0, 130.0]), np.array([20e3, 15e3, 14e3])
    scores = parse("slowdown:1.25").score(time_s, energy_j, REFERENCE)
    assert scores.tolist() == [20e3, 15e3, np.inf]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("EDP", "edp"),
        (" eds:2 ", "eds:2.0"),
        ("eds: 1.50", "eds:1.5"),
        ("cost:.5", "cost:0.5"),
        ("slowdown:1.10", "slowdown:1.1"),
    ],
)
def test_names_are_canonical(text, name):
    assert parse(text).name == name
    assert parse(text) == parse(name)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("enrgy", "there is no metric 'enrgy'", "did you mean energy? the metrics are: energy, "),
        ("fastest", "there is no metric", "the metrics are: energy"),
        ("", "there is no metric ''", "the metrics are"),
        ("eds", "a number must follow the colon", "eds:2.0"),
        ("eds:1", "above 1", "eds:2.0"),
        ("eds:nan", "above 1", "eds:2.0"),
        ("eds:inf", "finite", "eds:2.0"),
        ("cost:1.5", "between 0 and 1", "cost:0.5"),
        ("cost:nan", "between 0 and 1", "cost:0.5"),
        ("slowdown:0.9", "at least 1", "slowdown:1.1"),
        ("energy:2", "takes no argument", "write energy"),
    ],
)
def test_what_is_no_metric_says_what_is(text, message, hint):
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_cost_needs_the_highest_limit():
    with pytest.raises(UsageError, match=r"highest power limit.*edp"):
        parse("cost:0.5").score(1.0, 1.0, Reference(1.0, 1.0))


def test_units_are_said():
    units = {metric.name: metric.unit for metric in default_metrics()}
    assert units == {"energy": "J", "time": "s", "edp": "J s", "eds:1.5": "", "eds:2.0": ""}


@given(ANY, AMOUNTS, AMOUNTS, st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_less_of_both_is_never_worse(text, time_s, energy_j, longer, more):
    metric = parse(text)
    less = metric.score(time_s, energy_j, REFERENCE)
    both = metric.score(time_s * max(longer, 1), energy_j * max(more, 1), REFERENCE)
    assert less <= both * (1 + 1e-12)


@given(ANY, AMOUNTS, AMOUNTS, st.floats(0.01, 100), st.floats(0.01, 100))
def test_units_do_not_change_who_is_better(text, time_s, energy_j, per_second, per_joule):
    if text.startswith("cost"):
        per_joule = per_second  # watts stay watts
    metric, other = parse(text), Reference(100 * per_second, 20_000 * per_joule, 300.0)

    def relative(factor_s, factor_j, reference):
        score = metric.score(time_s * factor_s, energy_j * factor_j, reference)
        return score / metric.score(reference.time_s, reference.energy_j, reference)

    scaled = relative(per_second, per_joule, other)
    assert scaled == pytest.approx(relative(1, 1, REFERENCE), rel=1e-9)


PLUG_IN = """
from joulewise.metrics.metric import Metric
def soon(argument):
    if not argument:
        raise ValueError("how soon?")
    return Metric(f"soon:{argument}", "soon", "s", lambda t, e, r: t * float(argument))
def broken(argument):
    raise RuntimeError("out of order")
def other(argument):
    return 3
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    (tmp_path / "soonish.py").write_text(PLUG_IN)
    about = tmp_path / "soonish-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: soonish\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[joulewise.metrics]\nsoon = soonish:soon\nbroken = soonish:broken\n"
        "other = soonish:other\nabsent = nowhere:at_all\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("installed")
class TestInstalledMetrics:
    def test_a_metric_of_another_package_is_known_by_its_name(self):
        metric = parse("soon:3")
        assert isinstance(metric, Metric)
        assert metric.score(2.0, 1.0, REFERENCE) == 6.0

    def test_it_is_listed_and_meant(self):
        with pytest.raises(UsageError, match=r"did you mean soon\?.*slowdown:1\.1, .*soon"):
            parse("sooon:3")

    def test_what_it_does_not_take_is_a_usage_error(self):
        with pytest.raises(UsageError, match="how soon"):
            parse("soon")

    @pytest.mark.parametrize(
        ("text", "message"),
        [("broken", "out of order"), ("absent", "nowhere"), ("other", "returned int")],
    )
    def test_one_that_fails_is_named(self, text, message):
        with pytest.raises(JoulewiseError, match=message) as caught:
            parse(text)
        assert caught.value.exit_status == 125


def test_without_the_package_the_metric_is_unknown():
    with pytest.raises(UsageError, match="there is no metric"):
        parse("soon:3")

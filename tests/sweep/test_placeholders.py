"""A command's own parameters, in the places that it has for them, and braces of its own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.errors import UsageError
from joulewise.sweep.spec import names_in, render
from joulewise.sweep.validate import check_placeholders


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("{batch_size}", "32"),
        ("--batch-size={batch_size}", "--batch-size=32"),
        ("{batch_size}{lr}", "320.1"),
        ('{"batch":{batch_size},"lr":{lr}}', '{"batch":32,"lr":0.1}'),
        ('{"model":{"batch":{batch_size}}}', '{"model":{"batch":32}}'),
        ("{{batch_size}}", "{batch_size}"),
        ("{{print}}", "{print}"),
        ("{{{print}}}", "{{print}}"),
    ],
)
def test_a_name_in_braces_is_replaced_and_a_doubled_one_stays(text, becomes):
    assert render(text, {"batch_size": "32", "lr": "0.1"}) == becomes


OWN = [
    '{"a": 1, "b": {"c": [2]}}',
    "{}",
    "{0}",
    "{{}}",
    "{a,b}",
    "{1..5}",
    "${HOME}/x",
    "{ print }",
    "{print $1}",
    "f'{x + 1}'",
    "{x:03d}",
    "{",
    "}}",
    "{{ cookiecutter.name }}",
]


@pytest.mark.parametrize("text", OWN)
def test_braces_of_the_commands_own_stay(text):
    assert names_in(text) == set()
    assert render(text, {}) == text


@given(st.text(st.characters(exclude_characters="{")))
def test_text_without_braces_stays(text):
    assert render(text, {}) == text


@given(st.text())
def test_values_are_put_in_as_they_are(value):
    assert render("<{a}>", {"a": value}) == f"<{value}>"


def test_unknown_placeholder_is_refused_with_the_axes():
    with pytest.raises(UsageError, match=r"no values for \{batch\} in '--b=\{batch\}'") as refused:
        check_placeholders(["train.py", "--b={batch}"], ["batch_size", "lr"])
    assert "there are batch_size, lr" in refused.value.hint
    assert "{{batch}}" in refused.value.hint
    with pytest.raises(UsageError, match=r"\{print\}") as refused:
        check_placeholders(["awk", "{print}"], [])
    assert "there are none" in refused.value.hint


def test_axis_without_a_placeholder_is_refused():
    with pytest.raises(UsageError, match="lr is not used in the command"):
        check_placeholders(["train.py", "{batch_size}", "{{lr}}"], ["batch_size", "lr"])
    check_placeholders(["train.py", "{batch_size}", "rate-{lr}"], ["batch_size", "lr"])

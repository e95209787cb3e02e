import json

import pytest

from joulewise.report.charts import encoding
from joulewise.report.charts.theme import THEMES, apply_theme, theme_config

OKABE_ITO = {"#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7"}
SPEC = {
    "mark": {"type": "point", "size": 100, "dx": 10},
    "height": 200,
    "datasets": {"a": [{"height": 10, "size": 7}]},
    "config": {"view": {"continuousHeight": 9}},
}


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [it / 12.92 if it <= 0.04045 else ((it + 0.055) / 1.055) ** 2.4 for it in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", THEMES)
def test_applying_a_theme_copies_the_spec_and_keeps_its_data(theme):
    before = json.dumps(SPEC)
    worn = apply_theme(SPEC, theme)
    assert worn["config"] == theme_config(theme)
    assert worn["datasets"] == SPEC["datasets"]
    assert worn["width"] == "container"
    assert json.dumps(SPEC) == before


def test_lengths_and_areas_scale_with_the_type_in_print():
    light, paper = apply_theme(SPEC, "light", 400.0), apply_theme(SPEC, "print", 400.0)
    scale = (
        theme_config("print")["axis"]["titleFontSize"]
        / theme_config("light")["axis"]["titleFontSize"]
    )
    assert paper["height"] == pytest.approx(scale * light["height"])
    assert paper["mark"]["dx"] == pytest.approx(scale * light["mark"]["dx"])
    assert paper["mark"]["size"] == pytest.approx(scale**2 * light["mark"]["size"])
    assert light["width"] == paper["width"] == 400


@pytest.mark.parametrize("theme", THEMES)
def test_colours_are_colour_blind_safe_and_have_contrast(theme):
    worn = theme_config(theme)
    ground, colours = worn["background"], worn["range"]["category"]
    assert {colour.upper() for colour in colours} - {"#FFFFFF"} <= OKABE_ITO
    assert len(set(colours)) == len(colours)
    assert all(contrast(colour, ground) > 2 for colour in colours)
    assert contrast(worn["axis"]["titleColor"], ground) > 7
    assert contrast(worn["axis"]["labelColor"], ground) > 4.5


def test_series_differ_without_colour():
    colours = len(theme_config("light")["range"]["category"])
    assert len(set(map(tuple, encoding.DASHES))) >= colours
    assert len(set(encoding.SHAPES)) >= colours
    lines = encoding.encode_lines("what", ["a", "b"])
    assert lines["strokeDash"].to_dict()["scale"]["range"] == [[1, 0], [6, 3]]
    assert encoding.encode_points("what", ["a", "b"])["shape"].to_dict()["scale"]["domain"] == [
        "a",
        "b",
    ]


def test_parts_of_a_figure_share_its_width():
    parts = {"hconcat": [{"mark": "point"}, {"mark": "point"}]}
    worn = apply_theme(parts, "light", 600.0)
    assert sum(part["width"] for part in worn["hconcat"]) < 600
    assert "width" not in worn

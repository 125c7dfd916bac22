"""The style of figures: colors that can be told apart, and files that are the same in every call."""

import itertools
import xml.etree.ElementTree as ElementTree

import matplotlib.image
import numpy as np
import pytest

from plastax_benchmarks.methods import METHODS
from plastax_benchmarks.report.style import COLUMN, figure_style, method_look, new_figure, on_dark, save_figure


# Linear RGB of what a dichromat sees: Machado, Oliveira and Fernandes 2009, severity 1.
SIGHT = {
    "normal": np.eye(3),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
}

LEAST = 12.0
"""About five times the difference in CIELAB that is just noticeable."""


def linear(color):
    parts = np.array([int(color[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    to_xyz = np.array(
        [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.119192, 0.9503041]]
    )
    white = to_xyz.sum(1)
    x, y, z = (np.cbrt(v) if v > 216 / 24389 else (24389 / 27 * v + 16) / 116 for v in to_xyz @ rgb / white)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_lab_of_known_colors():
    # sRGB red in CIELAB, from the CIE's formulas.
    np.testing.assert_allclose(lab(linear("#ff0000")), [53.24, 80.09, 67.20], atol=0.05)
    np.testing.assert_allclose(lab(linear("#ffffff")), [100, 0, 0], atol=1e-6)


@pytest.mark.parametrize("background", [lambda color: color, on_dark], ids=["light", "dark"])
@pytest.mark.parametrize("sight", SIGHT)
def test_methods_can_be_told_apart_by_color_or_line_style(sight, background):
    seen = {name: lab(np.clip(SIGHT[sight] @ linear(background(kind.color)), 0, 1)) for name, kind in METHODS.items()}
    for one, other in itertools.combinations(METHODS, 2):
        if np.linalg.norm(seen[one] - seen[other]) < LEAST:
            assert method_look(one).style != method_look(other).style, (one, other)
            assert method_look(one).marker != method_look(other).marker, (one, other)


def test_colors_are_visible_on_both_backgrounds():
    for kind in METHODS.values():
        # A contrast of at least 3 to the dark background, as WCAG asks for graphics.
        light = 0.2126 * linear(on_dark(kind.color))[0] + 0.7152 * linear(on_dark(kind.color))[1]
        light += 0.0722 * linear(on_dark(kind.color))[2]
        dark = linear("#16181d") @ np.array([0.2126, 0.7152, 0.0722])
        assert (light + 0.05) / (dark + 0.05) >= 3, kind.name
    assert on_dark("#000000") == "#ffffff"


def test_a_method_that_is_not_part_of_plastax_has_a_color():
    assert method_look("mine") == method_look("mine")
    assert method_look("mine").color.startswith("#")
    assert len(method_look("mine").color) == 7


def figure():
    with figure_style():
        made = new_figure(COLUMN, 2.0)
        axis = made.subplots()
        axis.plot([0, 1], [0, 1], marker="o")
        axis.fill_between([0, 1], [0, 0], [1, 2])
        axis.set_title("a < b & c")
    return made


def test_figures_are_written_twice_the_same(tmp_path):
    first = [path.read_bytes() for path in save_figure(figure(), tmp_path / "v1.5")]
    second = [path.read_bytes() for path in save_figure(figure(), tmp_path / "again")]
    assert first == second
    assert {path.name for path in tmp_path.iterdir()} == {"v1.5.png", "v1.5.svg", "again.png", "again.svg"}
    texts = [element.text for element in ElementTree.fromstring(first[1]).iter("{http://www.w3.org/2000/svg}text")]
    assert "a < b & c" in texts
    assert b"<dc:date>" not in first[1]
    assert matplotlib.image.imread(tmp_path / "again.png").shape[:2] == (400, 650)

"""Figures of uncertainties, of the plane, of weights, and of methods side by side."""

from itertools import pairwise

import numpy as np
import pytest
from matplotlib.contour import ContourSet

from metareplay.errors import DataError
from metareplay.report import (
    LIGHT,
    Curves,
    Map,
    MapRow,
    Plane,
    boundaries_figure,
    maps_figure,
    regression_methods_figure,
    reliability_figure,
    uncertainty_figure,
    weights_figure,
)
from metareplay.report.figures.uncertainty import share_below
from metareplay.report.figures.weights import correlations, density


def regression_arrays() -> tuple[np.ndarray, np.ndarray, np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
    x = np.linspace(-6, 6, 50)
    std = np.stack([np.abs(x + 3) + 0.1, np.abs(x - 3) + 0.1])
    points = [(np.array([-3.0, -2.5]), np.array([0.0, 1.0])), (np.array([3.0, 2.5]), np.array([-1.0, 0.0]))]
    return x, np.stack([np.sin(x), np.cos(x)]), std, points


def test_methods_stand_side_by_side_and_one_posterior_is_drawn_once() -> None:
    x, mean, std, points = regression_arrays()
    methods = {"pr": Curves(x, mean, std, points), "pf": Curves(x, mean, std, points, one_posterior=True)}
    figure = regression_methods_figure(methods, ["left", "right"])
    panels = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in panels] == ["pr", "pf"]
    drawn = [[line for line in axes.lines if len(line.get_xdata())] for axes in panels]
    assert [len(lines) for lines in drawn] == [4, 2]  # a pale and a bold mean, of two tasks or of one posterior
    assert {line.get_color() for line in drawn[1]} == {LIGHT.ink}
    assert "one posterior for all tasks" in [text.get_text() for text in figure.legends[0].get_texts()]
    # one posterior infers nothing: its panel has a line below, no strip
    assert [len(axes.child_axes) for axes in panels] == [
        1,
        0,
    ]
    assert [axes.spines["bottom"].get_visible() for axes in panels] == [False, True]
    assert [(axes.child_axes or [axes])[0].get_xlabel() for axes in panels] == ["x", "x"]


def test_maps_share_one_scale_by_unit_and_put_rows_on_the_vertical_axis() -> None:
    plane = Plane(
        np.linspace(-8, 8, 5), np.linspace(-4, 4, 3), [(np.array([[0.0, 1.0], [2.0, 3.0]]), np.array([0, 1]))] * 2
    )
    maps = [Map(np.zeros((3, 5)), 0, "a"), Map(np.full((3, 5), 0.6), 1, "b")]
    figure = maps_figure(plane, [MapRow("ent", "nats", maps), MapRow("agree", "", maps[:1])], ["a", "b"])
    images = [axes for axes in figure.axes if axes.get_images()]
    assert [axes.get_title() for axes in images] == ["a", "b", "a"]
    assert [axes.get_images()[0].get_clim() for axes in images] == [(0.0, 0.6), (0.0, 0.6), (0.0, 1e-6)]
    assert list(images[0].get_images()[0].get_extent()) == [-8, 8, -4, 4]
    finer = plane._replace(grid_x=np.linspace(-1, 1, 9), grid_y=np.linspace(-1, 1, 9))
    several = [MapRow("one, ent", "nats", maps), MapRow("two, ent", "nats", [Map(np.full((9, 9), 0.1), 0)], finer)]
    images = [axes for axes in maps_figure(plane, several, ["a", "b"]).axes if axes.get_images()]
    # colours of two methods can be compared
    assert [axes.get_images()[0].get_clim() for axes in images] == [(0.0, 0.6)] * 3
    with pytest.raises(DataError, match="a map has shape"):
        maps_figure(plane, [MapRow("ent", "nats", [Map(np.zeros((5, 3)), 0)])], ["a", "b"])


@pytest.mark.parametrize(("classes", "lines"), [(1, 0), (2, 1), (3, 3)])
def test_a_boundary_is_where_the_likeliest_class_changes(classes: int, lines: int) -> None:
    axis = np.linspace(-1, 1, 21)
    directions = np.exp(2j * np.pi * np.arange(classes) / classes)
    odds = np.exp(axis * directions.real[:, None, None] + axis[:, None] * directions.imag[:, None, None])  # (C, 21, 21)
    plane = Plane(axis, axis, [(np.zeros((1, 2)), np.zeros(1))])
    figure = boundaries_figure({"": (plane, (odds / odds.sum(0))[None])}, ["a"])
    contours = [actual for actual in figure.axes[0].collections if isinstance(actual, ContourSet)]
    assert len(contours) == lines
    if classes == 2:
        assert abs(contours[0].get_paths()[0].vertices[:, 0]).max() < 1e-6  # halfway between right and left


def test_uncertainty_tells_how_often_the_own_task_is_surer() -> None:
    counts = np.zeros((2, 8))
    counts[0, 2], counts[1, 5] = 10, 30
    assert share_below(counts) == 1.0
    assert share_below(counts[::-1]) == 0.0
    assert share_below(np.ones((2, 8))) == 0.5
    figure = uncertainty_figure(np.logspace(-6, 2, 9), {"ent": counts, "ku": np.ones((2, 8)), "x$y$": counts})
    titles = [axes.get_title() for axes in figure.axes if axes.get_visible()]
    assert titles == [
        "ent: own task surer in 100.0 %",
        "ku: own task surer in 50.0 %",
        r"x\$y\$: own task surer in 100.0 %",
    ]


def test_many_bins_are_taken_together() -> None:
    figure = uncertainty_figure(np.logspace(-12, 4, 129), {"ent": np.ones((2, 128))})
    heights = figure.axes[0].patches[0].get_data().values
    assert len(heights) == 32
    assert heights.sum() == pytest.approx(100)


@pytest.mark.parametrize("span", [1.5, 4, 8, 19, 21, 75, 99, 110, 290, 310, 1e4, 1e9])
@pytest.mark.parametrize(
    "highest", [0.69, 0.013, *(pytest.param(value, marks=pytest.mark.slow) for value in (0.5, 80))]
)
def test_labels_of_uncertainties_do_not_touch(span: float, highest: float) -> None:
    counts = np.ones((2, 8))
    figure = uncertainty_figure(
        np.logspace(np.log10(highest / span), np.log10(highest), 9), {"ent": counts, "agree": counts}
    )
    figure.draw_without_rendering()
    axes = figure.axes[0]
    low, high = axes.get_xlim()
    shown = [
        label for tick, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True) if low <= tick <= high
    ]
    boxes = [label.get_window_extent() for label in shown]
    assert len(boxes) >= 2
    assert all(left.x1 + 3 < right.x0 for left, right in pairwise(boxes)), [label.get_text() for label in shown]


def test_reliability_shows_accuracy_and_confidence_of_bins_that_have_inputs() -> None:
    rows = np.zeros((3, 10))
    rows[:, 6], rows[:, 9] = (4, 2.6, 2), (16, 15.2, 16)
    axes, below = reliability_figure(rows).axes
    assert [bar.get_height() for bar in axes.patches] == [50, 100]
    assert [bar.get_height() for bar in below.patches] == [20, 80]
    assert [segment[0][1] for segment in axes.collections[0].get_segments()] == pytest.approx([65, 95])


def test_weights_show_densities_and_correlations() -> None:
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(1, 400, 6))
    samples[0, :, 1] = -samples[0, :, 0]
    samples[0, :, 2] = 1.0
    actual = correlations(samples[0])
    assert actual[0, 1] == pytest.approx(-1)
    assert actual[2].tolist() == [0.0] * 6  # does not vary
    assert abs(actual[3, 4]) < 0.2
    figure = weights_figure(samples, np.arange(6) * 10, ["a"])
    assert len([axes for axes in figure.axes if axes.get_xlabel().startswith("weight")]) == 3
    with pytest.raises(DataError, match="do not fit 2 tasks"):
        weights_figure(samples, np.arange(6), ["a", "b"])


def test_a_density_has_mass_one() -> None:
    x, y = np.linspace(-6, 6, 121), np.linspace(-12, 12, 121)
    points = np.random.default_rng(0).normal(size=(300, 2)) * [1, 2]
    heights = density(points, x, y)
    assert heights.sum() * (x[1] - x[0]) * (y[1] - y[0]) == pytest.approx(1, abs=1e-3)
    assert np.unravel_index(heights.argmax(), heights.shape) == pytest.approx((60, 60), abs=12)


def test_a_density_is_as_wide_and_as_oblique_as_scotts_rule_says() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(500, 1)) * [1, -2] + rng.normal(size=(500, 2)) * 0.1  # close to a line
    x = np.linspace(-10, 10, 101)
    heights = density(points, x, x)
    share = heights / heights.sum()
    grid_x, grid_y = np.meshgrid(x, x)
    means = [(share * grid).sum() for grid in (grid_x, grid_y)]
    actual = [(share * (grid - mean) ** 2).sum() for grid, mean in zip((grid_x, grid_y), means, strict=True)]
    wanted = points.var(axis=0) * (1 + 500 ** (-1 / 3)) + (20 / 100) ** 2
    assert actual == pytest.approx(wanted.tolist(), rel=0.02)
    assert (share * (grid_x - means[0]) * (grid_y - means[1])).sum() / np.sqrt(np.prod(actual)) < -0.95

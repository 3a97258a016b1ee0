"""Figures: what is drawn, and how it becomes a file or a part of a page."""

import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

from metareplay.errors import ConfigError, DataError, MetaReplayError
from metareplay.evaluation.boundaries import Thresholds
from metareplay.report import (
    DARK,
    comparison_figure,
    confusion_figure,
    learning_curves_figure,
    matrix_figure,
    regression_figure,
    save_figure,
)
from metareplay.report.base import Estimate
from metareplay.report.figures.boundaries import boundary_figure
from metareplay.report.figures.canvas import PAGE, inline_svg

NAMES = ["0/1", "2/3"]


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def history(task_lengths: tuple[int, ...] = (100, 200)) -> list[dict[str, float]]:
    return [
        {"task": task, "iteration": iteration, "loss": 1.0 / iteration, "data": 0.5, "prior": -0.5, "replay": 0.0}
        for task, length in enumerate(task_lengths)
        for iteration in range(50, length + 1, 50)
    ]


def regression_arrays() -> tuple[np.ndarray, np.ndarray, np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
    x = np.linspace(-6, 6, 50)
    std = np.stack([np.abs(x + 3) + 0.1, np.abs(x - 3) + 0.1])
    points = [(np.array([-3.0, -2.5]), np.array([0.0, 1.0])), (np.array([3.0, 2.5]), np.array([-1.0, 0.0]))]
    return x, np.stack([np.sin(x), np.cos(x)]), std, points


def test_learning_curves_join_the_tasks_on_one_axis() -> None:
    figure = learning_curves_figure([history()], NAMES)
    assert figure is not None
    # replay is zero throughout
    assert [axes.get_ylabel() for axes in figure.axes] == [
        f"{name}\nin nats" for name in ("total loss", "data term", "prior matching")
    ]
    (line,) = figure.axes[0].get_lines()
    assert list(line.get_xdata()) == [50, 100, 150, 200, 250, 300]
    assert figure.axes[-1].get_xlim() == (0, 300)
    assert texts(figure) == NAMES


def test_learning_curves_draw_one_line_per_seed_and_thin_out_long_ones() -> None:
    figure = learning_curves_figure([history((100_000, 50)), history()], NAMES)
    assert figure is not None
    lines = figure.axes[0].get_lines()
    assert len(lines) == 2
    assert len(lines[0].get_xdata()) <= 800


def test_losses_that_span_decades_get_a_logarithmic_axis_if_positive() -> None:
    figure = learning_curves_figure([history((5000, 50))], NAMES)
    assert figure is not None
    assert [axes.get_yscale() for axes in figure.axes] == ["log", "linear", "linear"]


@pytest.mark.parametrize("usual", [(0.002, 0.003), (-4.0, 7.0)])
def test_losses_of_any_sign_can_be_read_beside_a_peak(usual: tuple[float, float]) -> None:
    values = [0.0, *usual * 30, 85_000.0]
    lines = [{"task": 0, "iteration": place, "loss": value} for place, value in enumerate(values)]
    figure = learning_curves_figure([lines], ["only"])
    assert figure is not None
    axes = figure.axes[0]
    assert axes.get_yscale() == "symlog"
    figure.canvas.draw()
    low, high = axes.get_ylim()
    heights = axes.transAxes.inverted().transform(
        axes.transData.transform([(0, value) for value in (0.0, max(usual))])
    )[:, 1]
    assert heights[1] - heights[0] > 0.07  # on a linear axis less than 0.0001
    ticks = [tick for tick in axes.get_yticks() if low <= tick <= high]
    assert 0 in ticks
    assert 3 <= len(ticks) <= 6
    edges = [line.get_ydata()[0] for line in axes.get_lines() if line.get_linestyle() != "-"]
    assert max(edges) in ticks
    assert "linear" in figure.get_supxlabel()
    assert "linear" not in str(learning_curves_figure([history()], NAMES).get_supxlabel())


def test_ticks_of_losses_do_not_touch() -> None:
    for values in ((1e-9, 0.0, 3e-4, 9e5), (-70.0, 0.4, 3e6, 2.0), (1e-8, 1e4), (90, 81_000), (0.0, 1e-5, 1e-5, 1.0)):
        lines = [{"task": 0, "iteration": place, "loss": value} for place, value in enumerate(values * 9)]
        figure = learning_curves_figure([lines], ["only"])
        assert figure is not None
        figure.canvas.draw()
        axes = figure.axes[0]
        low, high = axes.get_ylim()
        shown = [
            label for tick, label in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True) if low <= tick <= high
        ]
        boxes = sorted((label.get_window_extent() for label in shown), key=lambda box: box.y0)
        assert len(boxes) >= 3
        assert all(below.y1 < above.y0 for below, above in pairwise(boxes)), values


def test_no_history_no_learning_curves() -> None:
    assert learning_curves_figure([[]], NAMES) is None


def test_matrix_shows_its_numbers_and_leaves_unlearned_tasks_empty() -> None:
    figure = matrix_figure(np.array([[99.9, np.nan], [98.04, 97.0]]), NAMES)
    assert sorted(texts(figure)) == ["97.0", "98.0", "99.9"]
    assert figure.axes[0].get_title() == "accuracy in %"
    assert figure.axes[0].get_ylabel() == "after learning task"
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == NAMES


def test_errors_are_stronger_where_they_are_larger() -> None:
    figure = matrix_figure(np.array([[0.001, np.nan], [0.1, 0.01]]), NAMES, error=True)
    strength = [patch.get_alpha() for patch in figure.axes[0].patches]
    assert strength[0] < strength[2] < strength[1]


def test_errors_stay_within_their_cells() -> None:
    figure = matrix_figure(
        np.array([[0.00754, np.nan], [0.000123456, 123.4]]), ["polynomial-1", "polynomial-2"], error=True
    )
    figure.canvas.draw()
    (axes,) = figure.axes
    assert axes.get_title() == "mean squared error"
    assert [text.get_text() for text in axes.texts] == ["0.0075", "0.00012", "123"]
    for text, cell in zip(axes.texts, axes.patches, strict=True):
        box, room = text.get_window_extent(), cell.get_window_extent()
        assert room.x0 < box.x0 < box.x1 < room.x1


def test_a_confusion_says_what_it_counts_and_by_which_criterion() -> None:
    assert (
        confusion_figure(np.eye(2) * 100, NAMES, criterion="ent").axes[0].get_title() == "inputs in %\ninferred by ent"
    )


@pytest.mark.parametrize("value", [0.0, np.inf])
def test_errors_of_zero_and_infinity_can_be_drawn(value: float) -> None:
    figure = matrix_figure(np.array([[value, np.nan], [0.1, 0.01]]), NAMES, error=True)
    assert len(figure.axes[0].patches) == (3 if value == 0 else 2)


def test_many_tasks_are_drawn_as_an_image_without_numbers() -> None:
    names = [str(i) for i in range(40)]
    figure = confusion_figure(np.eye(40) * 100, names)
    assert texts(figure) == []
    (image,) = figure.axes[0].get_images()
    assert image.get_array().shape == (40, 40, 4)
    assert len(figure.axes[0].get_xticks()) <= 12
    assert figure.axes[1].get_ylabel() == "inputs in %"  # the scale of colours
    errors = matrix_figure(np.exp(np.eye(40)), names, error=True)
    assert (errors.axes[1].get_ylabel(), errors.axes[1].get_yscale()) == ("mean squared error", "log")


def test_comparison_marks_every_method_that_has_the_figure() -> None:
    rows = {
        "pr-bbb": {"TGiven": Estimate(99.0, 0.1, 3), "TInfer": Estimate(70.0, 1.0, 3)},
        "joint": {"TGiven": Estimate(98.0, None, 1), "TInfer": None},
    }
    figure = comparison_figure(rows)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["pr-bbb", "joint"]
    marks = [list(container.lines[0].get_xdata()) for container in figure.axes[0].containers]
    assert marks == [[99.0, 98.0], [70.0]]


def test_long_labels_of_methods_are_broken_into_lines() -> None:
    rows = {"pr-bbb (strength=1000.0, iterations=400, samples=10)": {"TGiven": Estimate(99.0, None, 1)}, "vcl": {}}
    figure = comparison_figure(rows)
    figure.draw_without_rendering()
    labels = figure.axes[0].get_yticklabels()
    assert [label.get_text().count("\n") for label in labels] == [1, 0]
    assert all(label.get_window_extent().x0 >= 0 for label in labels)


def test_regression_shows_bands_points_truth_and_the_inferred_task() -> None:
    x, mean, std, points = regression_arrays()
    figure = regression_figure(x, mean, std, points, ["left", "right"], truth=np.stack([x, -x]))
    (axes,) = figure.axes
    (strip,) = axes.child_axes
    assert strip.get_xlabel() == "x"
    assert "task inferred" in figure.get_supxlabel()
    assert axes.get_xlim() == strip.get_xlim() == (-6, 6)
    assert [len(offsets.get_offsets()) for offsets in axes.collections if len(offsets.get_offsets()) > 1] == [2, 2]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "left",
        "right",
        "truth",
        "training points",
        "± 1 std. dev.",
    ]
    first = np.asarray(strip.collections[0].get_paths()[0].vertices)
    assert first[:, 0].min() == -6
    assert first[:, 0].max() == pytest.approx(0, abs=0.2)  # the left task is more confident to the left of zero
    low, high = axes.get_ylim()
    assert low < -1
    assert high > 1


def test_regression_without_truth_has_no_dashes() -> None:
    x, mean, std, points = regression_arrays()
    figure = regression_figure(x, mean, std, points, ["left", "right"])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "left",
        "right",
        "training points",
        "± 1 std. dev.",
    ]


def test_regression_without_uncertainty_infers_no_task() -> None:
    x, mean, std, points = regression_arrays()
    figure = regression_figure(x, mean, np.zeros_like(std), points, ["left", "right"])
    (axes,) = figure.axes
    assert axes.child_axes == []
    assert axes.get_xlabel() == "x"
    assert axes.spines["bottom"].get_visible()
    assert figure.get_supxlabel() == ""
    assert "± 1 std. dev." not in [text.get_text() for text in figure.legends[0].get_texts()]
    bold = [line for line in axes.get_lines() if line.get_label() in ("left", "right")]
    assert [np.isfinite(np.asarray(line.get_ydata())).all() for line in bold] == [True, True]


def test_arrays_of_the_wrong_shape_are_refused() -> None:
    x, mean, std, points = regression_arrays()
    with pytest.raises(DataError, match=r"std has shape \(1, 50\) but \(2, 50\)"):
        regression_figure(x, mean, std[:1], points, ["left", "right"])
    with pytest.raises(DataError, match="training points of 1 tasks but 2"):
        regression_figure(x, mean, std, points[:1], ["left", "right"])


def test_saved_figures_are_the_same_every_time_and_carry_no_date(tmp_path: Path) -> None:
    contents = set()
    for folder in ("one", "two"):
        path = save_figure(matrix_figure(np.eye(2) * 100, NAMES, theme=DARK), tmp_path / folder / "matrix.svg")
        contents.add(path.read_text())
        assert [file.name for file in path.parent.iterdir()] == ["matrix.svg"]
    (svg,) = contents
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert "date" not in svg.lower()


def test_a_pdf_is_the_same_every_time(tmp_path: Path) -> None:
    drawn = [
        save_figure(confusion_figure(np.eye(2) * 100, NAMES), tmp_path / f"{name}.pdf").read_bytes() for name in "ab"
    ]
    assert drawn[0].startswith(b"%PDF")
    assert drawn[0] == drawn[1]


def test_figures_are_saved_as_png_too(tmp_path: Path) -> None:
    path = save_figure(matrix_figure(np.eye(2) * 100, NAMES), tmp_path / "matrix.png")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_other_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\.svg, \.pdf or \.png"):
        save_figure(Figure(), tmp_path / "figure.gif")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "matrix.svg"
    path.write_text("old")

    def broken(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("metareplay.files.os.replace", broken)
    with pytest.raises(MetaReplayError, match="No space left"):
        save_figure(matrix_figure(np.eye(2), NAMES), path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_inline_svg_follows_the_page_and_refers_to_its_own_ids() -> None:
    figure = learning_curves_figure([history()], NAMES, theme=PAGE)
    assert figure is not None
    svg = inline_svg(figure, "m0", "curves")
    root = ElementTree.fromstring(svg)
    ids = re.findall(r'\bid="([^"]+)"', svg)
    assert len(ids) == len(set(ids))
    assert all(name.startswith("m0-") for name in ids)
    references = set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg))
    assert references
    assert references <= set(ids)
    assert "currentColor" in svg
    assert not re.search(r"#01020[3-6]|https?:|<style|<metadata", svg)
    assert any(element.tag == "text" and element.text == "iteration" for element in root.iter())


@pytest.mark.parametrize("name", ["$x$ and $", "a_$b^$", "<b>&", "数字"])
def test_names_of_tasks_are_drawn_as_they_are(name: str) -> None:
    svg = inline_svg(confusion_figure(np.eye(2) * 100, [name, "other"], theme=PAGE), "m0", "confusion")
    assert name in [element.text for element in ElementTree.fromstring(svg).iter("text")]


def test_a_single_task_can_be_drawn() -> None:
    assert texts(confusion_figure(np.array([[100.0]]), ["only"])) == ["100"]
    assert texts(matrix_figure(np.array([[0.1]]), ["only"], error=True)) == ["0.1"]


def test_task_boundaries_are_drawn_over_several_runs() -> None:
    signals = [np.random.default_rng(seed).random((3, 50, 2)) for seed in range(2)]
    actual = [Thresholds(0.9, 0.2, 0.0, 1.0), Thresholds(0.2, 0.9, 0.0, 1.0)]  # a range of thresholds, and none
    drawn = boundary_figure(signals, actual)
    titles = [axes.get_title(loc="left") for axes in drawn.axes]
    assert titles == ["thresholds without error: 70.0 % of the range", "no threshold is without error"]
    assert [len(axes.patches) for axes in drawn.axes] == [1, 0]
    assert [axes.get_xlim() for axes in drawn.axes] == [(0, 150)] * 2
    legend = [text.get_text() for text in drawn.legends[0].get_texts()]
    assert legend[0] == "mean over 10 iterations"
    # tasks of 50 iterations keep their last window
    assert legend[2] == "highest elsewhere, after a grace period of 40 iterations"

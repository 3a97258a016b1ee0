"""Drawings by name from run folders: what there is, and what is left out where a run kept nothing for it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.contour import ContourSet
from safetensors.numpy import load_file, save_file

from metareplay.errors import DataError
from metareplay.report.figures.canvas import LIGHT
from metareplay.report.figures.drawings import DRAWINGS, Drawing
from metareplay.report.runs import Group, find_runs, group_runs

MakeRun = Callable[..., Path]
Results = Callable[..., dict[str, Any]]
Add = Callable[..., None]
MODES = {
    "benchmark": "modes-2d",
    "num_tasks": 3,
    "task_names": ["a", "b", "c"],
    "tgiven_matrix": [[99.0]] * 3,
    "task_confusion": None,
}


def draw(name: str, groups: list[Group]) -> list[Drawing]:
    return list(DRAWINGS[name].draw(groups, LIGHT))


def groups_in(*folders: Path) -> list[Group]:
    return group_runs(find_runs(folders).runs)


@pytest.fixture
def modes(make_run: MakeRun, make_results: Results, add_modes_arrays: Add) -> Path:
    folder = make_run("modes", make_results(**MODES))
    add_modes_arrays(folder)
    return folder


@pytest.fixture
def other(make_run: MakeRun, make_results: Results, add_modes_arrays: Add) -> Path:
    """Another method on the same problem."""
    folder = make_run("other", make_results("pr-dirac", **MODES))
    add_modes_arrays(folder)
    return folder


def test_a_run_without_extra_files_has_curves_matrix_and_confusions(make_run: MakeRun, make_results: Results) -> None:
    groups = groups_in(make_run("run", make_results()))
    actual = {name: [drawing.name for drawing in draw(name, groups)] for name in DRAWINGS}
    confusions = [f"confusion-{name}" for name in ("ent", "conf", "agree", "ku")]
    assert {name: names for name, names in actual.items() if names} == {
        "curves": ["curves"],
        "matrix": ["matrix"],
        "confusion": confusions,
    }


def test_uncertainties_of_seeds_are_added_up(
    make_run: MakeRun, make_results: Results, add_uncertainty_arrays: Add, tmp_path: Path
) -> None:
    for seed in (0, 1):
        add_uncertainty_arrays(make_run(f"runs/seed-{seed}", make_results(seed=seed, calibration_error=10.0 + seed)))
    (one,), (two,) = groups_in(tmp_path / "runs/seed-0"), groups_in(tmp_path / "runs")
    titles = [[axes.get_title() for axes in draw("uncertainty", [group])[0].figure.axes] for group in (one, two)]
    assert titles[0] == titles[1]  # the same scores twice
    assert titles[0][0].startswith("ent: own task surer in 9")
    (drawing,) = draw("reliability", [two])
    assert "10.50 points" in drawing.caption


def test_strangers_of_all_seeds_are_drawn_by_kind_with_the_threshold(
    make_run: MakeRun, make_results: Results, add_uncertainty_arrays: Add, tmp_path: Path
) -> None:
    aurocs = ({"noise": 0.9, "mixed rows": 0.8}, {"noise": 1.0, "mixed rows": 0.9})
    for seed, auroc in enumerate(aurocs):
        results = make_results(seed=seed, unknown={"false_rejections": [5.0] * 5, "auroc": auroc})
        add_uncertainty_arrays(make_run(f"runs/seed-{seed}", results), strangers=True)
    (drawing,) = draw("strangeness", groups_in(tmp_path / "runs"))
    panels = [axes for axes in drawing.figure.axes if axes.get_visible()]
    titles = ["noise: AUROC 0.950, 100.0 % rejected", "mixed rows: AUROC 0.850, 75.0 % rejected"]
    assert [axes.get_title() for axes in panels] == titles
    assert all(axes.lines[0].get_xdata() == [1.0, 1.0] for axes in panels)
    assert all(axes.get_ylim()[1] > 100 for axes in panels)  # the highest bar of any panel
    assert [patch.get_data().values.max() for patch in panels[0].patches[::2]] == pytest.approx([95.0, 100.0])
    assert "All seeds together." in drawing.caption


def test_strangers_without_a_stored_auroc_have_that_of_their_bins(
    make_run: MakeRun, make_results: Results, add_uncertainty_arrays: Add
) -> None:
    folder = make_run("run", make_results())
    add_uncertainty_arrays(folder, strangers=True)
    (drawing,) = draw("strangeness", groups_in(folder))
    titles = sorted(axes.get_title() for axes in drawing.figure.axes if axes.get_visible())
    share = 0.95 + 0.05 * (0.725 + 0.0125)  # above all but 5 % of the known; 29.5 of 40 strangers are above those
    assert titles == [f"mixed rows: AUROC {share:.3f}, 75.0 % rejected", "noise: AUROC 1.000, 100.0 % rejected"]
    add_uncertainty_arrays(folder)
    assert draw("strangeness", groups_in(folder)) == []


def test_the_plane_has_boundaries_maps_and_samples(modes: Path) -> None:
    groups = groups_in(modes)
    (maps,), (singles,) = draw("maps", groups), draw("samples", groups)
    assert len(draw("boundaries", groups)) == len(draw("weights", groups)) == 1
    rows = [axes.get_ylabel().split("\n")[0] for axes in maps.figure.axes if axes.get_images() and axes.get_ylabel()]
    assert rows == ["ent", "conf", "agree"]
    assert len([axes for axes in maps.figure.axes if axes.get_images()]) == 9
    titles = [axes.get_title() for axes in singles.figure.axes if axes.get_title()]
    assert titles == ["mean prediction", "sample 1", "sample 2"]
    rows = [axes.get_ylabel().split("\n")[0] for axes in singles.figure.axes if axes.get_images() and axes.get_ylabel()]
    assert rows == [f"{task}, {criterion}" for task in "abc" for criterion in ("ent", "conf")]
    shown = [axes for axes in singles.figure.axes if axes.get_images()]
    lack = np.asarray(shown[4].get_images()[0].get_array())  # the first sample of the first task, conf
    right = 1 / (1 + np.exp(-np.linspace(-8, 8, 60)))
    assert lack == pytest.approx(np.minimum(right, 1 - right) * np.ones((60, 1)), abs=1e-6)
    # the boundaries of single samples
    assert all(any(isinstance(actual, ContourSet) for actual in axes.collections) for axes in shown)
    assert "confidence" in singles.caption


def test_several_methods_have_entropy_and_agreement_below_one_another(modes: Path, other: Path) -> None:
    arrays = load_file(other / "predictive.safetensors")
    save_file(
        {name: array for name, array in arrays.items() if name not in ("agree", "sample_entropy")},
        other / "predictive.safetensors",
    )
    (maps,) = draw("maps", groups_in(modes, other))
    rows = [axes.get_ylabel().split("\n")[0] for axes in maps.figure.axes if axes.get_images() and axes.get_ylabel()]
    assert rows == ["pr-bbb, ent", "pr-bbb, agree", "pr-dirac, ent"]
    assert draw("samples", groups_in(other)) == []


def test_folders_without_probabilities_of_samples_show_their_entropies(modes: Path) -> None:
    arrays = load_file(modes / "predictive.safetensors")
    del arrays["sample_probability"]
    save_file(arrays, modes / "predictive.safetensors")
    (singles,) = draw("samples", groups_in(modes))
    rows = [axes.get_ylabel().split("\n")[0] for axes in singles.figure.axes if axes.get_images() and axes.get_ylabel()]
    assert rows == ["a", "b", "c"]
    assert singles.caption.startswith("Entropy of")


def test_methods_of_different_versions_stand_in_one_figure(modes: Path, other: Path) -> None:
    arrays = load_file(other / "predictive.safetensors")
    coarse = {name: arrays[name][::2].copy() for name in ("grid_x", "grid_y")}
    coarse |= {name: arrays[name][..., ::2, ::2].copy() for name in ("entropy", "probability", "agree")}
    save_file(arrays | coarse, other / "predictive.safetensors")
    (maps,) = draw("maps", groups_in(modes, other))
    sizes = [axes.get_images()[0].get_array().shape for axes in maps.figure.axes if axes.get_images()]
    assert sizes == [(60, 60)] * 6 + [(30, 30)] * 6


def test_folders_of_earlier_versions_show_their_entropy(modes: Path) -> None:
    kept = ("entropy", "grid_x", "grid_y", *(f"train_{axis}_{task}" for axis in "xy" for task in range(3)))
    arrays = load_file(modes / "predictive.safetensors")
    save_file({name: arrays[name] for name in kept}, modes / "predictive.safetensors")
    groups = groups_in(modes)
    assert [len(draw(name, groups)) for name in ("maps", "boundaries", "samples", "weights")] == [1, 0, 0, 0]


def test_a_method_without_task_inference_has_one_posterior(
    make_run: MakeRun, make_regression_results: Results, add_regression_arrays: Add
) -> None:
    folders = [
        make_run("pr", make_regression_results("pr-avb")),
        make_run("pf", make_regression_results("vcl", task_inference_accuracy={})),
    ]
    for folder in folders:
        add_regression_arrays(folder)
    (drawing,) = draw("regression", groups_in(*folders))
    assert [axes.get_title() for axes in drawing.figure.axes if axes.get_title()] == ["pr-avb", "vcl"]
    assert "one posterior for all tasks" in [text.get_text() for text in drawing.figure.legends[0].get_texts()]


def test_a_missing_array_is_named(modes: Path) -> None:
    arrays = load_file(modes / "predictive.safetensors")
    del arrays["train_x_1"]
    save_file(arrays, modes / "predictive.safetensors")
    with pytest.raises(DataError, match=r"predictive\.safetensors lacks 'train_x_1'"):
        draw("maps", groups_in(modes))

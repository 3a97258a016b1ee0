"""All drawings by name, from the files in run folders: for the page and for ``metareplay figure``."""

from collections.abc import Iterator, Sequence

import numpy as np

from metareplay.evaluation.boundaries import NAMES as SIGNAL_NAMES
from metareplay.evaluation.boundaries import SIGNALS, WINDOW, grace_period, over_runs, read_signals, thresholds
from metareplay.report.base import (
    CALIBRATION,
    estimate,
    fine_tuned_row,
    mean_matrix,
    show_number,
    task_names,
)
from metareplay.report.figures.arrays import (
    array_of,
    decision_map,
    first_with,
    plane_of,
    training_points,
    uncertainty_maps,
)
from metareplay.report.figures.base import Drawing, Kind, mean_remark
from metareplay.report.figures.boundaries import boundary_figure
from metareplay.report.figures.canvas import Theme
from metareplay.report.figures.inferred import confusion, labels, strangeness
from metareplay.report.figures.maps import Map, MapRow, boundaries_figure, maps_figure
from metareplay.report.figures.predictive import Curves, regression_methods_figure
from metareplay.report.figures.replayed import replayed
from metareplay.report.figures.results import learning_curves_figure, matrix_figure
from metareplay.report.figures.uncertainty import UNITS, reliability_figure, uncertainty_figure
from metareplay.report.figures.weights import weights_figure
from metareplay.report.runs import FinishedRun, Group, Tensors

_MOST_MAPS = 4  # tasks in one row of maps


def curves(groups: Sequence[Group], theme: Theme) -> Iterator[Drawing]:
    """Each term of the loss over all iterations."""
    group = groups[0]
    names = task_names(group.first)
    stages = names if fine_tuned_row(group.results) is None else [*names, "fine-tuning"]
    drawn = learning_curves_figure([run.history for run in group.runs], stages, theme=theme)
    if drawn is not None:
        constant = ", up to a constant" if group.regression else ""
        caption = "Each term of the loss while the tasks are learned in turn, "
        caption += f"in nats over all training examples of a task{constant}."
        caption += " One line per seed." if len(group.runs) > 1 else ""
        yield Drawing("curves", "Learning curves", caption, drawn, wide=True)


def matrix(groups: Sequence[Group], theme: Theme) -> Iterator[Drawing]:
    """Scores of all tasks after each task."""
    group = groups[0]
    names = task_names(group.first)
    values = mean_matrix([run.tgiven_matrix for run in group.results], len(names))
    if values is not None:
        what = "Mean squared error" if group.regression else "Accuracy in %"
        tuned = "" if fine_tuned_row(group.results) is None else ", before fine-tuning"
        caption = f"{what} on each task (columns) after each task (rows){tuned}, task known.{mean_remark(group)}"
        yield Drawing(
            "matrix", "Memory over time", caption, matrix_figure(values, names, error=group.regression, theme=theme)
        )


def uncertainty(groups: Sequence[Group], theme: Theme) -> Iterator[Drawing]:
    """Uncertainty about own inputs against inputs of other tasks."""
    group = groups[0]
    kept = [arrays for run in group.runs if (arrays := run.uncertainty()) is not None and "edges" in arrays]
    counts = {}
    for name in UNITS:
        # (2, T, bins) -> (2, bins)
        by_seed = [arrays[f"scores.{name}"].sum(axis=1) for arrays in kept if f"scores.{name}" in arrays]
        if by_seed and np.all(np.sum(by_seed, axis=0).sum(axis=1) > 0):
            counts[name] = np.sum(by_seed, axis=0)
    if counts:
        caption = "How uncertain each task's posterior is about its own test inputs and about those of other tasks, "
        caption += "as shares of the inputs. The further apart, the better tasks can be told apart; "
        caption += "the title says how often an input of the task has the lower uncertainty."
        drawn = uncertainty_figure(kept[0]["edges"], counts, theme=theme)
        yield Drawing("uncertainty", "Uncertainty in and out of the task", caption, drawn, wide=True)


def reliability(groups: Sequence[Group], theme: Theme) -> Iterator[Drawing]:
    """Confidence against accuracy, with the task known."""
    group = groups[0]
    by_seed = [
        arrays["reliability"].sum(axis=0)
        for run in group.runs
        if (arrays := run.uncertainty()) and "reliability" in arrays
    ]
    if by_seed:  # (T, 3, bins) -> (3, bins)
        error = estimate(group.results, CALIBRATION.number)
        gap = (
            ""
            if error is None
            else f" Their mean gap, the expected calibration error, is {show_number(error.mean, 'percent')} points."
        )
        caption = f"Answers by how confident they are: confidence against accuracy, all tasks, task known.{gap}"
        yield Drawing("reliability", "Reliability", caption, reliability_figure(np.sum(by_seed, axis=0), theme=theme))


def regression(groups: Sequence[Group], theme: Theme) -> Iterator[Drawing]:
    """Predictions of 1D regression, the methods side by side."""
    entries = _with_array(groups, "mean")
    if not entries:
        return
    names = task_names(entries[0][0].first)
    methods = {}
    for group, run, arrays in entries:
        points = [(np.ravel(x), np.ravel(y)) for x, y in training_points(run, arrays, len(names))]
        label = group.label if len(entries) > 1 else ""
        x, std = np.ravel(array_of(run, arrays, "x")), array_of(run, arrays, "std")
        shared = run.results.task_inference_accuracy == {} and run.results.scenario != "task" and bool(np.any(std > 0))
        methods[label] = Curves(x, arrays["mean"], std, points, arrays.get("truth"), shared)
    caption = "Mean and one standard deviation of each task's final prediction; dots are training points"
    caption += ", dashes the truth." if any(method.truth is not None for method in methods.values()) else "."
    if any(method.infers for method in methods.values()):
        caption += " Strip: the task inferred by variance, whose standard deviation is the smallest."
    drawn = regression_methods_figure(methods, names, theme=theme)
    yield Drawing("regression", "Predictions", caption + _seeds(entries), drawn, wide=True)


def boundaries(groups: Sequence[Group], theme: Theme) -> Iterator[Drawing]:
    """Training points and decision boundaries in the plane, the methods side by side."""
    entries = _with_array(groups, "probability")
    if entries:
        names = task_names(entries[0][0].first)
        methods = {
            group.label if len(entries) > 1 else "": (plane_of(run, arrays, len(names)), arrays["probability"])
            for group, run, arrays in entries
        }
        caption = (
            "Training points of all tasks, and where the most likely class of each task's final prediction changes."
        )
        yield Drawing(
            "boundaries",
            "Decision boundaries",
            caption + _seeds(entries),
            boundaries_figure(methods, names, theme=theme),
        )


def maps(groups: Sequence[Group], theme: Theme) -> Iterator[Drawing]:
    """Uncertainty over the plane for each task: by criterion for one method; entropy and agreement for several."""
    entries = _with_array(groups, "entropy")
    if not entries:
        return
    names = task_names(entries[0][0].first)
    rows: list[MapRow] = []
    for group, run, arrays in entries:
        plane = plane_of(run, arrays, len(names))
        wanted = ("ent", "conf", "agree") if len(entries) == 1 else ("ent", "agree")
        by_criterion = {name: values for name, values in uncertainty_maps(arrays).items() if name in wanted}
        for name, values in by_criterion.items():
            # above the first row only, if all rows have the same titles
            titles = names if not rows or len(names) > _MOST_MAPS else [""] * len(names)
            panels = [Map(values[task], task, titles[task], decision_map(arrays, task)) for task in range(len(names))]
            label = name if len(entries) == 1 else f"{group.label}, {name}"
            rows += [
                MapRow(label, UNITS[name], panels[i : i + _MOST_MAPS], plane) for i in range(0, len(panels), _MOST_MAPS)
            ]
    caption = "Uncertainty of each task's final prediction over the plane; "
    caption += "it should be low only near the task's own (larger) points."
    caption += " Each criterion has one colour scale." if len(entries) > 1 else ""
    yield Drawing(
        "maps", "Uncertainty maps", caption + _seeds(entries), maps_figure(plane, rows, names, theme=theme), wide=True
    )


def samples(groups: Sequence[Group], theme: Theme) -> Iterator[Drawing]:
    """Entropy and lack of confidence over the plane for single weight samples, next to the mean prediction's."""
    entries = _with_array(groups[:1], "sample_entropy")
    for group, run, arrays in entries:
        names = task_names(group.first)
        by_criterion = {
            "ent": np.concatenate([array_of(run, arrays, "entropy")[:, None], arrays["sample_entropy"]], axis=1)
        }
        classes = None
        if {"sample_probability", "probability"} <= set(arrays):  # runs of earlier versions stored only entropies
            # (T, 1 + K, C, rows, columns)
            classes = np.concatenate([arrays["probability"][:, None], arrays["sample_probability"]], axis=1)
            by_criterion["conf"] = np.clip(1 - classes.max(axis=2), 0, 1)  # (T, 1 + K, rows, columns)
        rows: list[MapRow] = []
        for task, name in enumerate(names):
            for criterion, values in by_criterion.items():
                titles = ["mean prediction" if i == 0 else f"sample {i}" for i in range(values.shape[1])]
                edges = [None] * len(titles) if classes is None else classes[task]
                panels = [Map(values[task, i], task, title * (not rows), edges[i]) for i, title in enumerate(titles)]
                rows.append(MapRow(f"{name}, {criterion}" if len(by_criterion) > 1 else name, UNITS[criterion], panels))
        what = "Entropy and lack of confidence" if len(by_criterion) > 1 else "Entropy"
        caption = f"{what} of single networks sampled from each task's posterior. "
        caption += "Where they are confident but disagree, their mean is uncertain."
        plane = plane_of(run, arrays, len(names))
        yield Drawing(
            "samples",
            "Single weight samples",
            caption + _seeds(entries),
            maps_figure(plane, rows, names, theme=theme),
            wide=True,
        )


def task_boundaries(groups: Sequence[Group], theme: Theme) -> Iterator[Drawing]:
    """Loss and uncertainty of every training batch, and the thresholds that detect task boundaries in all seeds."""
    runs = [run for group in groups[:1] for run in group.runs if (run.folder / SIGNALS).is_dir()]
    if not runs or any(len(task_names(run.results)) < 2 for run in runs):
        return
    signals = [read_signals(run.folder) for run in runs]
    bounds = [over_runs([thresholds(signal[..., number]) for signal in signals]) for number in range(len(SIGNAL_NAMES))]
    shares = ", ".join(
        f"{bound.viable_share:.1f} % of its range for {name}" if bound.viable_share > 0 else f"none for {name}"
        for name, bound in zip(SIGNAL_NAMES, bounds, strict=True)
    )
    labels = (
        ("loss in nats, up to a constant", "predictive variance")
        if groups[0].regression
        else ("loss in nats", "entropy in nats")
    )
    drawn = boundary_figure([signal.numpy() for signal in signals], bounds, labels=labels, theme=theme)
    caption = (
        f"Means over {WINDOW} iterations. Thresholds that detect every boundary and nothing else (grey): {shares}. "
    )
    grace = grace_period(signals[0].shape[1])
    caption += f"The first {grace} iterations of a task are a grace period, in which nothing is detected."
    yield Drawing(
        "task-boundaries",
        "Task boundaries",
        caption + (f" {len(runs)} seeds." if len(runs) > 1 else ""),
        drawn,
        wide=True,
    )


def weights(groups: Sequence[Group], theme: Theme) -> Iterator[Drawing]:
    """Joint densities and correlations of some weights under each task's posterior."""
    entries = _with_array(groups[:1], "weights")
    for group, run, arrays in entries:
        drawn = weights_figure(
            arrays["weights"], array_of(run, arrays, "weight_index"), task_names(group.first), theme=theme
        )
        caption = "Joint densities of random pairs of weights under each task's final posterior, "
        caption += "and correlations of a random subset."
        yield Drawing("weights", "Posteriors in weight space", caption + _seeds(entries), drawn, wide=True)


DRAWINGS: dict[str, Kind] = {
    "curves": Kind("learning curves by loss term", curves),
    "matrix": Kind("accuracy (or error) on each task after each task", matrix),
    "confusion": Kind("true task against inferred task, for each criterion", confusion),
    "labels": Kind("true label against the answer, task inferred", labels),
    "strangeness": Kind("histograms of known and unknown inputs, with the threshold between them", strangeness),
    "uncertainty": Kind("histograms of uncertainty about own inputs and other tasks' inputs", uncertainty),
    "reliability": Kind("confidence against accuracy", reliability),
    "replayed": Kind("generative replay: inputs generated after each task", replayed),
    "task-boundaries": Kind(
        "loss and uncertainty of every training batch, thresholds that detect task boundaries", task_boundaries
    ),
    "regression": Kind("1D regression: predictive posteriors, methods side by side", regression, True, ("mean",)),
    "boundaries": Kind(
        "2D classification: training data, decision boundaries, methods side by side",
        boundaries,
        True,
        ("probability",),
    ),
    "maps": Kind(
        "2D classification: uncertainty (ent, conf, agree) over the plane", maps, True, ("entropy", "probability")
    ),
    "samples": Kind(
        "2D classification: entropy and confidence of single weight samples", samples, False, ("sample_entropy",)
    ),
    "weights": Kind("weight space: joint densities of pairs of weights, correlations", weights, False, ("weights",)),
}
"""What can be drawn, by name."""


def _with_array(groups: Sequence[Group], name: str) -> list[tuple[Group, FinishedRun, Tensors]]:
    """Of each group the first seed that stored an array; groups without one are left out."""
    return [(group, *entry) for group in groups if (entry := first_with(group, name)) is not None]


def _seeds(entries: Sequence[tuple[Group, FinishedRun, Tensors]]) -> str:
    chosen = sorted({run.results.seed for group, run, _ in entries if len(group.runs) > 1})
    return f" Seed {', '.join(map(str, chosen))}." if chosen else ""

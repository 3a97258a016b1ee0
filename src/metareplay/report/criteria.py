"""Task-inference criteria in reports: what they mean, their order and groups, and the default."""

import math
from collections import Counter
from collections.abc import Sequence

from metareplay.experiments.results import Results, SquaredErrors
from metareplay.report.base import (
    VARIANCE,
    Measure,
    Number,
    estimate,
    inferred_error,
    right_label,
    right_task,
    root,
    tinfer,
)

PAPER: dict[str, str] = {
    "ent": "the task whose prediction has the lowest entropy",
    "conf": "the task whose most likely class has the highest probability",
    "agree": "the task whose weight samples agree most with one another",
    "ku": "the task with the least uncertainty about its weights (mutual information of weights and label)",
    "grad": "the task whose share in a mixture of all tasks' predictions lowers its entropy most",
    VARIANCE: "the task with the smallest predictive variance",
    "softmax": "one softmax over the classes of all tasks, no task is inferred",
}
"""How the paper's criteria choose a task, in the order in which tables show them."""
STATISTICS: dict[str, str] = {
    "stats": "the task that all statistics of inputs, features and outputs together make most probable",
    "mahalanobis": "the task with the class whose features are nearest, in units of their covariance",
    "relative": "the same, less the distance to the task as a whole",
    "pairs": "the task that fits better than most others, two at a time in a network that knows both",
    "pca": "the task with the class whose principal directions leave the least of the input unexplained; no network",
    "task-net": "the task that a network trained on replayed inputs finds most probable",
    "energy": "the task with the largest log-sum-exp of its outputs",
    "margin": "the task whose largest output leads the second by most",
    "other": 'the task that finds "none of these classes" least probable',
}
"""The same for criteria that compare statistics stored about the tasks, or outputs."""
TITLES = PAPER | STATISTICS
REMARKS = {"pca": "no network: reference"}
"""What has to be known along with a criterion's figures."""

PAPER_GROUP, STATISTICS_GROUP, OTHER_GROUP = "The paper's criteria", "By statistics and outputs", "Other criteria"


def inferred(criterion: str, *, regression: bool) -> Number:
    """Accuracy, or squared error, after the last task, with the task inferred."""
    return inferred_error(criterion) if regression else tinfer(criterion)


def criteria_of(runs: Sequence[Results]) -> list[str]:
    """The criteria for which any run has a figure: the default, the paper's, those by statistics, others by name."""
    figures = [
        by_name or {} for run in runs for by_name in (run.tinfer_final, run.task_inference_accuracy, run.batch_wise)
    ]
    names = {
        name for by_name in figures for name, value in by_name.items() if value is not None and math.isfinite(value)
    }
    default, order = stated_default(runs), list(TITLES)
    return sorted(names, key=lambda name: (name != default, order.index(name) if name in order else len(order), name))


def stated_default(runs: Sequence[Results]) -> str | None:
    """The criterion by which most runs infer tasks unless another is named; None if none says so."""
    names = [run.default_criterion for run in runs if run.default_criterion and _has(run, run.default_criterion)]
    return Counter(names).most_common(1)[0][0] if names else None


def headline_criterion(runs: Sequence[Results]) -> str | None:
    """The default, or what the paper reports first: entropy, or one softmax; never the best in hindsight."""
    stated = stated_default(runs)
    return stated or next((name for name in criteria_of(runs) if any(_has(run, name) for run in runs)), None)


def needs_no_task(run: Results) -> bool:
    """Whether a method answers the same with and without the task: one network, tasks that share all outputs."""
    if run.scenario != "domain" or any(_has(run, name) for name in criteria_of([run])):
        return False
    if run.regression:
        return run.answers is not None and run.answers.rmse is not None
    return run.labels is not None and not run.labels.task_known


def headline_number(common: str | None) -> Number:
    """A run's figure by the common criterion or, if it has none, by its own; right labels where tasks share them.

    That of a method which needs no task is the one with the task given.
    """

    def number(results: Results) -> float | None:
        name = common if common is not None and _has(results, common) else headline_criterion([results])
        if name is None and needs_no_task(results):
            return (results.mse or SquaredErrors()).tgiven_final if results.regression else results.tgiven_final
        if name is None:
            return None
        labels = right_label(name)(results)
        return inferred(name, regression=results.regression)(results) if labels is None else labels

    return number


def headline_measure(common: str | None, *, regression: bool) -> Measure:
    """The figure with the task inferred by the common criterion or, for a run that does not have it, by its own."""
    number, by = headline_number(common), f", {common}" if common else ""
    if regression:
        meaning = "Root mean squared error, in the units of the targets, after the last task, with the task inferred."
        gloss = f"root of MSE TInfer-Final{by}"
        return Measure(root(number), "RMSE, task inferred", "mse", meaning, False, gloss)
    meaning = "Accuracy after the last task, with the task inferred."
    return Measure(number, "Task inferred", "percent", meaning, gloss=f"TInfer-Final{by}")


def grouped(criteria: Sequence[str], default: str | None) -> list[tuple[str, list[str]]]:
    """Criteria in groups with their titles: the default alone, the paper's, those by statistics, others."""
    rest = [name for name in criteria if name != default]
    groups = [
        ("Default", [name for name in criteria if name == default]),
        (PAPER_GROUP, [name for name in rest if name in PAPER]),
        (STATISTICS_GROUP, [name for name in rest if name in STATISTICS]),
        (OTHER_GROUP, [name for name in rest if name not in TITLES]),
    ]
    return [(title, names) for title, names in groups if names]


def _has(run: Results, name: str) -> bool:
    """Whether a run can be compared by a criterion."""
    numbers = (inferred_error(name), right_task(name)) if run.regression else (tinfer(name),)
    return any(estimate([run], number) is not None for number in numbers)

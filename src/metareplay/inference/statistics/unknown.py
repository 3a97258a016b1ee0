"""Unknown inputs, which belong to none of the tasks.

Choosing among tasks and rejecting all of them need different scores: strange inputs often have small, unremarkable
features. An input is strange to a task if its class is uncertain, if its density is low, or if it lies too far from the
task's principal subspace or too close to it. Each is measured in units of its spread over the task's held-out inputs,
none counts for more than a fixed number of units, and they are summed. Of images, the density of the edges counts
twice, whether it is unusually low or high. Inputs do not drift, and the drift of entropies is
followed (``entropies``), so the thresholds hold while later tasks are learned.

Nothing of this is remarkable for a blank image, which lies within the subspace of pale ones. So the contrast of images
has bounds of its own, far outside those of the task's images.
"""

from collections.abc import Mapping, Sequence
from math import ceil

import torch
from torch import Tensor

from metareplay.inference.statistics.entropies import as_if_unseen, factors
from metareplay.inference.statistics.evidence import TaskEvidence

LEAST_SCALE = 0.1
"""The smallest unit of a measure, relative to its largest value over the held-out inputs."""
LEAST_ENTROPY = 0.1
"""The smallest unit of entropies, in nats: what a network has been trained on looks far too certain."""
LEAST, MOST = -1.0, 20.0
"""The fewest and the most units that one measure counts for."""
TOO_CLOSE, NEVER = 3, 1e30
"""The measure of inputs too close to their task's principal subspace, and a unit that it never reaches."""
OF_EDGES = 4
"""The measures from here on are of edges: how improbable they are, and how probable."""
EDGES_COUNT, TOO_USUAL_COUNTS = 2.0, 0.7
"""For how many other measures edges count, and how much of an improbable one a too probable one counts."""
WIDE = 65
"""Features from which on this measure counts."""
CONTRAST = "unknown.contrast"
LEAST_CONTRAST = 1e-6
"""What counts as none, in units of the inputs' standard deviation."""
BEYOND = 3.0
"""How many times as far from the median as the extremes of a task's images the bounds of contrast are."""
NEAREST_BOUND = 0.5
"""The least distance of these bounds from the median."""


def measures(evidence: TaskEvidence, tasks: Tensor) -> Tensor:
    """What makes inputs strange to the tasks they were assigned to (N,): (J, N); NaN for edges without a density."""
    row = torch.arange(len(tasks))
    residuals = evidence.residuals[tasks, row]
    rows = [evidence.entropies[tasks, row], evidence.inputs[tasks, row], residuals, -residuals]
    edges = [] if evidence.edges is None else [evidence.edges[tasks, row], -evidence.edges[tasks, row]]
    return torch.stack([*rows, *edges])


def own_measures(alone: TaskEvidence, *, edges: bool, then: Tensor | None = None) -> Tensor:
    """What makes a task's own inputs strange to it, compared with this task only: (J, N); without or with edges.

    ``then`` are the entropies of its probes (P,) if its network was trained on these inputs.
    """
    found = measures(alone, torch.zeros(alone.inputs.shape[1], dtype=torch.int64))
    found = found if edges else found[:OF_EDGES]
    if then is not None:
        found[0] = as_if_unseen(found[0], then)
    return found


def calibrated(of_task: Tensor, false_rejections: float, *, features: int = WIDE) -> dict[str, Tensor]:
    """From a task's own inputs (J, N): the middle and unit of each measure (J,), and the threshold of their sum.

    Inputs of few features cannot be too close to a subspace that spans most of them.
    """
    middle = of_task.median(1).values  # (J, N) -> (J,)
    upper = of_task.quantile(1 - false_rejections, dim=1)  # (J,)
    unit = torch.maximum(upper - middle, LEAST_SCALE * (of_task.amax(1) - middle)).clamp_min(1e-9)
    unit[0] = unit[0].clamp_min(LEAST_ENTROPY)
    if features < WIDE:
        unit[TOO_CLOSE] = NEVER
    sums = summed(of_task, middle.unsqueeze(1), unit.unsqueeze(1))  # (N,)
    return {"unknown.middle": middle, "unknown.unit": unit, "unknown.threshold": threshold(sums, false_rejections)}


def threshold(values: Tensor, false_rejections: float) -> Tensor:
    """What a new value exceeds with this probability, from some values (N,) of the same distribution: ().

    A new value exceeds the k-th smallest of them with probability (m + 1) / (N + 1), m = N - k, which is rarely the one
    asked for; in between by interpolation, such that it is on average if large values are distributed exponentially.
    With too few values for that, the largest.
    """
    if not len(values):
        return torch.tensor(torch.inf, dtype=torch.float64)
    ordered, count = values.sort().values, len(values)
    expected = (count + 1) * false_rejections
    above = min(max(ceil(expected) - 1, 0), count - 1)  # m, larger values than the lower one
    if above == 0 or expected > count:
        return ordered[count - 1 - above]
    part = above * ((above + 1) / expected - 1)  # E exp(-part D) = m / (m + part) for a gap D of rate m
    return ordered[count - 1 - above].lerp(ordered[count - above], min(part, 1.0))


def contrasts(images: Tensor) -> Tensor:
    """The log standard deviation of an image's values: (N, ...) -> (N,)."""
    return images.flatten(1).double().std(1, correction=0).clamp_min(LEAST_CONTRAST).log()


def contrast_bounds(images: Tensor, before: Tensor | None = None) -> dict[str, Tensor]:
    """Bounds of a task's contrasts and their median between them (3,), from some of its images and what is known.

    Nothing for inputs other than images.
    """
    if images.ndim < 3 or not len(images):
        return {}
    found = contrasts(images)
    middle = found.median()
    low = middle - (BEYOND * (middle - found.min())).clamp_min(NEAREST_BOUND)
    high = middle + (BEYOND * (found.max() - middle)).clamp_min(NEAREST_BOUND)
    if before is not None:
        low, middle, high = torch.minimum(low, before[0]), before[1], torch.maximum(high, before[2])
    return {CONTRAST: torch.stack([low, middle, high])}


def beyond_bounds(images: Tensor, tasks: Tensor, stored: Sequence[Mapping[str, Tensor]]) -> Tensor:
    """How far contrasts are from those of the images' tasks (N,), relative to the bounds; 0 without any: (N,)."""
    beyond, contrast = torch.zeros(len(images), dtype=torch.float64), None
    for task in tasks.unique().tolist():
        if CONTRAST in stored[task]:
            contrast = contrasts(images) if contrast is None else contrast
            low, middle, high = stored[task][CONTRAST]
            rows = tasks == task
            away = contrast[rows] - middle
            beyond[rows] = torch.where(away < 0, away / (low - middle), away / (high - middle))
    return beyond


def strangeness(evidence: TaskEvidence, tasks: Tensor, stored: Sequence[Mapping[str, Tensor]]) -> Tensor:
    """How strange inputs are to the tasks they were assigned to, relative to the threshold: above 1, unknown; (N,)."""
    if not len(tasks):
        return torch.zeros(0, dtype=torch.float64)
    found, place = tasks.unique(return_inverse=True)
    few = [stored[task] for task in found.tolist()]
    values = measures(evidence, tasks)
    middle = _of_tasks(few, "unknown.middle", len(values))[place].T  # (N, J) -> (J, N)
    unit = _of_tasks(few, "unknown.unit", len(values))[place].T
    threshold = torch.stack([task["unknown.threshold"] for task in few])[place]  # (N,)
    values[0] *= factors(few)[place]  # entropies as they were when the thresholds were taken
    return summed(values, middle, unit) / threshold.clamp_min(1e-9)


def _of_tasks(stored: Sequence[Mapping[str, Tensor]], name: str, count: int) -> Tensor:
    """One number for each measure; NaN for those that a task does not have: (T, J)."""
    result = torch.full((len(stored), count), torch.nan, dtype=torch.float64)
    for row, task in enumerate(stored):
        values = task[name][:count]
        result[row, : len(values)] = values
    return result


def summed(values: Tensor, middle: Tensor, unit: Tensor) -> Tensor:
    """The sum of all measures in their units, never negative; those of edges may be NaN: (J, N) -> (N,)."""
    units = ((values - middle) / unit).clamp(LEAST, MOST)  # (J, N)
    total = units[:OF_EDGES].sum(0) - LEAST * OF_EDGES
    if len(units) == OF_EDGES:
        return total
    improbable, usual = units[OF_EDGES:] - LEAST
    return total + EDGES_COUNT * torch.maximum(improbable, TOO_USUAL_COUNTS * usual).nan_to_num(0.0)

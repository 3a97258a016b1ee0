"""Unknown inputs, which belong to none of the tasks.

Choosing among tasks and rejecting all of them need different scores: strange inputs often have small, unremarkable
features. An input is strange to a task if its class is uncertain, if its density is low, or if it lies too far from the
task's principal subspace or too close to it. Each is measured in units of its spread over the task's held-out inputs,
none counts for more than a fixed number of units, and they are summed. Inputs do not drift, and the drift of entropies
is followed (``entropies``), so the thresholds hold while later tasks are learned.
"""

from collections.abc import Mapping, Sequence
from math import ceil

import torch
from torch import Tensor

from metareplay.inference.statistics.entropies import factors
from metareplay.inference.statistics.evidence import TaskEvidence

LEAST_SCALE = 0.1
"""The smallest unit of a measure, relative to its largest value over the held-out inputs."""
LEAST_ENTROPY = 0.1
"""The smallest unit of entropies, in nats: what a network has been trained on looks far too certain."""
LEAST, MOST = -1.0, 20.0
"""The fewest and the most units that one measure counts for."""


def measures(evidence: TaskEvidence, tasks: Tensor) -> Tensor:
    """What makes inputs strange to the tasks they were assigned to (N,): (J, N)."""
    row = torch.arange(len(tasks))
    residuals = evidence.residuals[tasks, row]
    return torch.stack([evidence.entropies[tasks, row], evidence.inputs[tasks, row], residuals, -residuals])


def calibrated(of_task: Tensor, false_rejections: float) -> dict[str, Tensor]:
    """From a task's own inputs (J, N): the middle and unit of each measure (J,), and the threshold of their sum."""
    count = of_task.shape[1]
    middle = of_task.median(1).values  # (J, N) -> (J,)
    upper = of_task.quantile(1 - false_rejections, dim=1)  # (J,)
    unit = torch.maximum(upper - middle, LEAST_SCALE * (of_task.amax(1) - middle)).clamp_min(1e-9)
    unit[0] = unit[0].clamp_min(LEAST_ENTROPY)
    sums = summed(of_task, middle.unsqueeze(1), unit.unsqueeze(1)).sort().values  # (N,)
    rank = min(count, ceil((count + 1) * (1 - false_rejections)))  # split conformal
    return {
        "unknown.middle": middle,
        "unknown.unit": unit,
        "unknown.threshold": sums[rank - 1] if count else torch.tensor(torch.inf, dtype=torch.float64),
    }


def strangeness(evidence: TaskEvidence, tasks: Tensor, stored: Sequence[Mapping[str, Tensor]]) -> Tensor:
    """How strange inputs are to the tasks they were assigned to, relative to the threshold: above 1, unknown; (N,)."""
    if not len(tasks):
        return torch.zeros(0, dtype=torch.float64)
    found, place = tasks.unique(return_inverse=True)
    few = [stored[task] for task in found.tolist()]
    middle = torch.stack([task["unknown.middle"] for task in few])[place].T  # (N, J) -> (J, N)
    unit = torch.stack([task["unknown.unit"] for task in few])[place].T
    threshold = torch.stack([task["unknown.threshold"] for task in few])[place]  # (N,)
    values = measures(evidence, tasks)
    values[0] *= factors(few)[place]  # entropies as they were when the thresholds were taken
    return summed(values, middle, unit) / threshold.clamp_min(1e-9)


def summed(values: Tensor, middle: Tensor, unit: Tensor) -> Tensor:
    """The sum of all measures in their units: (J, N) -> (N,)."""
    return ((values - middle) / unit).clamp(LEAST, MOST).sum(0) - LEAST * len(values)  # never negative

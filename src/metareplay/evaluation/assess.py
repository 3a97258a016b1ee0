"""How far the inferred tasks can be relied on: calibration of their probabilities, false rejections, unknown inputs."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from metareplay.benchmarks.base import TaskData
from metareplay.evaluation.strangers import auroc, strangers
from metareplay.evaluation.uncertainty import calibration_error, reliability
from metareplay.inference.criteria.base import CRITERIA
from metareplay.inference.predictor import AnyPredictor
from metareplay.inference.task_inference import choose_tasks
from metareplay.seeding import generator_for

PER_TASK = 200
"""Test inputs of a task from which unknown inputs are made."""
BINS = 40
HIGHEST = 5.0
"""Histograms of strangeness end here; the last bin also has what is above."""


@dataclass(frozen=True)
class Assessment:
    """Percentages, except for Brier scores (0 to 2) and AUROC (0 to 1)."""

    calibration_error: float | None
    """Of the tasks' probabilities, over all tasks: by true task it would be large even if they were perfect.

    None if the scenario has no task to infer.
    """
    brier: list[float] | None
    false_rejections: list[float]
    """Test inputs taken for unknown, by true task."""
    auroc: dict[str, float]
    """Of strangeness, test inputs against unknown inputs, by kind."""
    histograms: dict[str, Tensor]
    """Strangeness of test inputs ("known") and of each kind of unknown input: (bins,) each."""


def assess(
    predictor: AnyPredictor, tests: Sequence[TaskData], *, seed: int, widths: Sequence[int] | None = None
) -> Assessment | None:
    """Test what statistics say about tasks and unknown inputs; None for a model without statistics.

    ``widths``: the inputs that each column of a table became, if that is known.
    """
    if not predictor.keeper.available or not tests:
        return None
    infers = bool(predictor.criteria()) and predictor.model.num_tasks > 1
    compared = [_compared(predictor, test.x, task, infers) for task, test in enumerate(tests)]
    strange_to, probabilities = zip(*compared, strict=True)
    known = torch.cat(strange_to)
    x = torch.cat([test.x[:PER_TASK] for test in tests])
    kinds = strangers(x, generator_for(seed, "strangers"), widths=widths)
    of_kinds = {name: _compared(predictor, values, None, infers)[0] for name, values in kinds.items()}
    bins = [_reliability(rows, task) for task, rows in enumerate(probabilities)] if infers else None
    return Assessment(
        None if bins is None else calibration_error(torch.stack(bins).sum(0)),  # (T, 3, bins) -> (3, bins)
        [_brier(rows, task) for task, rows in enumerate(probabilities)] if infers else None,
        [float(100.0 * (values > 1.0).double().mean()) for values in strange_to],
        {name: auroc(known, values) for name, values in of_kinds.items()},
        {"known": _histogram(known), **{name: _histogram(values) for name, values in of_kinds.items()}},
    )


def _compared(predictor: AnyPredictor, x: Tensor, task: int | None, infers: bool) -> tuple[Tensor, Tensor]:
    """Strangeness to the task inferred by the default criterion (N,), and its probabilities of the tasks (N, T)."""
    if not infers and task is not None:  # the task is given
        return predictor.keeper.strangeness_to(task, x), torch.zeros(len(x), 0)
    contest = predictor.contests([CRITERIA[predictor.default_criterion]], x)[0]  # by statistics, or by a network
    scores, compared = contest.scores(), contest.evidence.comparison
    probabilities = contest.probabilities(scores)
    evidence = predictor.keeper.evidence(x, distances=False, outputs=False) if compared is None else compared.evidence
    assert probabilities is not None
    return predictor.keeper.strangeness(evidence, choose_tasks(scores), x), probabilities


def _reliability(probabilities: Tensor, task: int) -> Tensor:
    confidence, chosen = probabilities.max(1)
    return reliability(confidence, chosen == task)  # (3, bins)


def _brier(probabilities: Tensor, task: int) -> float:
    """The mean squared distance of the probabilities (N, T) to the truth."""
    truth = torch.zeros_like(probabilities)
    truth[:, task] = 1.0
    return float((probabilities - truth).square().sum(1).mean())


def _histogram(values: Tensor) -> Tensor:
    return torch.histc(values.clamp(0.0, HIGHEST), BINS, 0.0, HIGHEST)

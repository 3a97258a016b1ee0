"""Taking a task's calibration when the task ends, from examples that training did not use.

Where too few are held out, closed-form predictions of examples that were left out are used in addition, or instead.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Generator, Tensor

from metareplay.benchmarks.base import TaskData
from metareplay.inference.calibration.classes import ClassCalibration, fit_classes, frequencies
from metareplay.inference.calibration.left_out import MOST, residuals_when_left_out, right_when_left_out
from metareplay.inference.calibration.linear import MOST_COLUMNS, linear_answers, linear_fit, share_of_network
from metareplay.inference.calibration.targets import TargetCalibration, fit_targets
from metareplay.inference.predictive import log_likelihoods, log_predictive

CALIBRATION = "calibration"
"""The name under which it is stored with the task statistics."""
SAMPLES = 20
"""Weight samples of the predictions by which a task is calibrated."""
INPUTS = 500
ENOUGH = 100
"""Held-out examples that suffice by themselves."""
Outputs = Callable[[Tensor], Tensor]
"""The task's outputs for some inputs: (N, ...) -> (S, N, C)."""


def class_calibration(
    outputs_of: Outputs, used: TaskData, held_out: TaskData, classes: int, *, generator: Generator
) -> ClassCalibration:
    """Of a task just learned from the ``used`` examples."""
    held_out = _some(held_out, INPUTS)
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    if held := len(held_out.x):
        outputs = outputs_of(held_out.x)  # (S, N, C)
        parts.append((outputs, _right(outputs, held_out.y), torch.ones(held, dtype=torch.float64)))
    if held < ENOUGH and len(used.x) > 1:
        some = _at_random(used, MOST, generator)
        each = (ENOUGH - held) / len(some.x) if held else 1.0
        outputs = outputs_of(some.x)  # (S, N, C)
        right = right_when_left_out(some.x, some.y, classes) & _right(outputs, some.y)
        parts.append((outputs, right, torch.full((len(some.x),), each, dtype=torch.float64)))
    prior = frequencies(used.y, classes)
    if not parts:
        return ClassCalibration(torch.ones((), dtype=torch.float64), torch.tensor(0.5, dtype=torch.float64), prior)
    outputs, rights, share = (
        torch.cat(part, dim) for part, dim in zip(zip(*parts, strict=True), (1, 0, 0), strict=True)
    )
    return fit_classes(outputs, rights, share, prior)


def target_calibration(
    outputs_of: Outputs, used: TaskData, held_out: TaskData, *, linear: bool = True, generator: Generator
) -> TargetCalibration:
    """Of a task just learned from the ``used`` examples; whether a linear fit may count beside the network."""
    held_out = _some(held_out, INPUTS)
    held = len(held_out.x)
    if held >= ENOUGH or len(used.x) < 3:
        unseen = held_out if held else used
        return fit_targets(*_residuals(outputs_of(unseen.x), unseen.y), used.y)
    some = _at_random(used, MOST, generator)
    residuals, std = _left_out(outputs_of, some)
    if held:
        of_held_out, std_of_held_out = _residuals(outputs_of(held_out.x), held_out.y)
        size = residuals.square().mean(0)  # (D,)
        seen = (of_held_out.square().sum(0) + (ENOUGH - held) * size) / ENOUGH  # (D,)
        residuals = torch.cat([of_held_out, residuals * (seen / size.clamp_min(1e-12)).sqrt()])  # (M, D)
        std = torch.cat([std_of_held_out, std])  # (M, D)
    if not linear or some.x.ndim > 2 or some.x.shape[1] > MOST_COLUMNS:
        return fit_targets(residuals, std, used.y)
    coefficients, of_linear = linear_fit(some.x, some.y)
    if held:
        missed = held_out.y.double() - linear_answers(coefficients, held_out.x)
        of_linear = torch.cat([missed, of_linear])  # (M, D)
    share = share_of_network(residuals, of_linear)  # (D,)
    fitted = fit_targets(share * residuals + (1 - share) * of_linear, std, used.y)
    return fitted if bool((share == 1).all()) else replace(fitted, share=share, linear=coefficients)


def _left_out(outputs_of: Outputs, used: TaskData) -> tuple[Tensor, Tensor]:
    """Residuals of examples had they not been learned from, and their standard deviation (N, D) each."""
    fitted, std = _residuals(outputs_of(used.x), used.y)
    residuals = residuals_when_left_out(used.x, used.y, fitted)
    learned = fitted.square().mean(0) > residuals.square().mean(0)  # no example is easier when it is new; (D,)
    return torch.where(learned, fitted, residuals), std


def _right(outputs: Tensor, y: Tensor) -> Tensor:
    """Whether the most probable class is right: (S, N, C), (N,) -> (N,) bool."""
    return log_predictive(log_likelihoods(outputs)).argmax(1) == y


def _residuals(outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Targets minus predictions, and the standard deviation of these: (S, N, D), (N, D) -> (N, D) each."""
    outputs = outputs.double()
    return y.double() - outputs.mean(0), outputs.std(0, correction=0)


def _some(data: TaskData, most: int) -> TaskData:
    """At most this many examples, evenly spread."""
    step = max(1, -(-len(data.x) // most))
    return TaskData(data.x[::step], data.y[::step])


def _at_random(data: TaskData, most: int, generator: Generator) -> TaskData:
    if len(data.x) <= most:
        return data
    rows = torch.randperm(len(data.x), generator=generator)[:most].sort().values
    return TaskData(data.x[rows], data.y[rows])

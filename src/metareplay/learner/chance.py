"""Whether a task that has just been learned is answered better than by chance."""

from typing import cast

import torch
from torch import Tensor

from metareplay.benchmarks.base import TaskData
from metareplay.inference.predictive import log_likelihoods, log_predictive, predictive_outputs
from metareplay.model import ContinualModel
from metareplay.seeding import generator_for
from metareplay.training.watch import Notice

MOST, SAMPLES = 200, 10
"""Examples that are answered, and weight samples they are answered with."""
ENOUGH = 100
"""Held-out examples that suffice by themselves."""
LEAST_GAIN = 0.1
"""A task is at chance if its recall is less than this share of the way from chance to perfect."""
LEAST_R2 = 0.02
RARE = 0.9
"""A class with at least this share of the examples leaves few of the others to learn from."""
SKEWED = (
    "{share:.0f} % of them have one label, and the others are too few to be told apart: add examples of these, try "
    "more training.iterations or another training.learning_rate, and judge by probabilities rather than by labels"
)
ADVICE = (
    "try more training.iterations, another training.learning_rate, network or seed; "
    "or the inputs may not determine the targets"
)


@torch.no_grad()
def at_chance(
    model: ContinualModel, task: int, used: TaskData, held_out: TaskData, *, classes: bool, seed: int
) -> Notice | None:
    """A notice if the task's held-out examples are answered by chance, or its training examples if these are few.

    Few held-out examples may be right by luck; what was not even learned from the training examples was not learned.
    """
    parts = [(held_out, "held-out")] if len(held_out.x) else []
    if len(held_out.x) < ENOUGH:
        parts.append((used, "training"))
    for data, where in parts:
        if (notice := _answered_by_chance(model, task, data, where, classes=classes, seed=seed)) is not None:
            return notice
    return None


def _answered_by_chance(
    model: ContinualModel, task: int, data: TaskData, where: str, *, classes: bool, seed: int
) -> Notice | None:
    step = max(1, len(data.x) // MOST)  # over all of them: they may be sorted
    x, y = data.x[::step], data.y[::step]
    generator = generator_for(seed, "chance", task)
    if classes and len(y.unique()) > 1:
        outputs = predictive_outputs(model, x, task, SAMPLES, generator=generator)  # (S, N, C)
        recall, chance = _recall(log_predictive(log_likelihoods(outputs)).argmax(1), y)
        if recall <= chance + LEAST_GAIN * (1 - chance):
            words = f"{100 * recall:.0f} % of its {where} examples are right (mean over classes), {100 * chance:.0f} %"
            most = float(y.bincount().max() / len(y))
            advice = SKEWED.format(share=100 * most) if most >= RARE else ADVICE
            return Notice("chance", f"it does no better than chance: {words} by guessing; {advice}")
    elif not classes and len(y) > 1 and bool((y.var(0) > 0).all()):
        mean = predictive_outputs(model, x, task, SAMPLES, generator=generator).double().mean(0)  # (S, N, D) -> (N, D)
        left = (mean - y).square().mean(0) / y.double().var(0, correction=0)  # (N, D) -> (D,)
        r2 = float(1 - left.mean())
        if r2 <= LEAST_R2:
            words = f"R² is {r2:.2f} on its {where} examples"
            return Notice("chance", f"it does no better than the mean: {words}; {ADVICE}")
    return None


def _recall(answers: Tensor, y: Tensor) -> tuple[float, float]:
    """The mean share of right answers over the classes that occur, and what guessing would give."""
    labels = y.unique()
    shares = [cast(float, (answers[y == label] == label).double().mean().item()) for label in labels]
    return sum(shares) / len(shares), 1 / len(labels)

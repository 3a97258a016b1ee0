"""Whether a task that has just been learned is answered better than by chance.

Training examples cannot tell: a network that is large enough knows them by heart. Held-out examples can, but few of
them may be right by luck, so chance has to be rejected by a test. Where fewer than ``ENOUGH`` are held out, kernel
regression on training examples, without each of them in turn, stands for those that are missing.
"""

from typing import NamedTuple

import torch
from torch import Generator, Tensor

from metareplay.benchmarks.base import TaskData
from metareplay.inference.calibration.left_out import MOST as MOST_LEFT_OUT
from metareplay.inference.calibration.left_out import answers_when_left_out, residuals_when_left_out
from metareplay.inference.predictive import log_likelihoods, log_predictive, predictive_outputs
from metareplay.model import ContinualModel
from metareplay.seeding import generator_for
from metareplay.training.watch import Notice

MOST, SAMPLES = 500, 10
"""Examples that are answered, and weight samples they are answered with."""
ENOUGH = 100
"""Held-out examples that suffice by themselves."""
LEAST_GAIN = {True: 0.1, False: 0.02}
"""A task is at chance if less than this share of the way from chance to perfect is gained: classes; R² of targets."""
CLOSE, LEVEL = 0.3, 2.0
"""Up to this share it may be at chance: it is unless chance is rejected by so many standard errors, one-sided 2.3 %."""
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
OF_IMAGES = (
    "; a few hundred photos are too few for a small network: network=resnet-32, or features:NAME, a pretrained "
    "backbone, gets more from them"
)


class Evidence(NamedTuple):
    """How well some examples are answered."""

    gain: float
    """From 0 for guessing to 1 for perfect; R² for regression."""
    variance: float
    """Of the gain, if answers have nothing to do with targets."""
    words: str
    """With a place for which examples these are."""


@torch.no_grad()
def at_chance(
    model: ContinualModel,
    task: int,
    used: TaskData,
    held_out: TaskData,
    *,
    classes: bool,
    seed: int,
    revised: bool = False,
) -> Notice | None:
    """A notice if a task may be answered by chance, for all that its examples show.

    Of a task that is ``revised`` they are but the new ones, too few for a test: what counts is how they are answered.
    """
    generator = generator_for(seed, "chance", task)
    used, held_out = (_some(data, MOST, generator) for data in (used, held_out))
    parts = {"held-out": held_out}
    if len(held_out.x) < ENOUGH:
        parts["training"] = used
    answers = {where: _answers(model, task, data, classes, generator) for where, data in parts.items()}
    words = _at_chance(used, held_out, answers, classes, tested=not revised)
    if words is None:
        return None
    share = float(used.y.bincount().max() / len(used.y)) if classes else 0.0
    advice = SKEWED.format(share=100 * share) if share >= RARE else ADVICE
    advice += OF_IMAGES if classes and _are_photos(used.x) else ""
    return Notice("chance", f"it does no better than {'chance' if classes else 'the mean'}: {words}; {advice}")


def _are_photos(x: Tensor) -> bool:
    """Whether inputs are images of several channels, (N, C, H, W)."""
    return x.ndim == 4 and x.shape[1] > 1


def _at_chance(
    used: TaskData, held_out: TaskData, answers: dict[str, Tensor], classes: bool, *, tested: bool
) -> str | None:
    """What shows that a task is at chance; None if it is not."""
    held = len(held_out.x)
    evidence = _of_labels if classes else _of_targets
    parts: list[tuple[float, Evidence]] = []
    if _varies(held_out.y, classes):
        parts.append((held / ENOUGH, evidence(answers["held-out"], held_out.y, f"its {held} held-out examples")))
    if held < ENOUGH and _varies(used.y, classes):
        learned = evidence(answers["training"], used.y, "its training examples")
        if learned.gain <= LEAST_GAIN[classes]:
            return learned.words
        if tested:
            left_out = _left_out(used, answers["training"], classes)
            parts.append((1 - held / ENOUGH if parts else 1.0, left_out))
    total = sum(weight for weight, _ in parts)
    if not parts or (gain := sum(weight * part.gain for weight, part in parts) / total) > CLOSE:
        return None
    error = sum(weight**2 * part.variance for weight, part in parts) ** 0.5 / total
    words = ", and ".join(part.words for _, part in parts)
    if gain <= LEAST_GAIN[classes]:
        return words
    return f"{words}, which is too little to tell it from that" if tested and gain <= LEVEL * error else None


def _left_out(used: TaskData, answers: Tensor, classes: bool) -> Evidence:
    """How training examples would be answered if they had not been learned from, as far as kernel regression can tell.

    What the network has not even learned counts as it answers it.
    """
    x, y, answers = used.x[:MOST_LEFT_OUT], used.y[:MOST_LEFT_OUT], answers[:MOST_LEFT_OUT]  # in random order
    where = f"{len(x)} of its training examples without these (kernel regression)"
    if classes:
        unseen = answers_when_left_out(x, y, int(used.y.max()) + 1)  # (n,)
        return _of_labels(torch.where(answers == y, unseen, answers), y, where)
    fitted = y.double() - answers  # (n, D)
    unseen = residuals_when_left_out(x, y, fitted)  # (n, D)
    learned = fitted.square().mean(0) > unseen.square().mean(0)  # no example is easier when it is new; (D,)
    return _of_targets(y.double() - torch.where(learned, fitted, unseen), y, where)


def _of_labels(answers: Tensor, y: Tensor, where: str) -> Evidence:
    """The mean share of right answers over the classes that occur; its variance is that over permutations of labels.

    (N,), (N,)
    """
    labels, position, counts = y.unique(return_inverse=True, return_counts=True)
    chance = 1 / len(labels)
    shares = (answers.unsqueeze(1) == y.unsqueeze(0)).double() * (chance / counts[position].double())  # (N, N)
    recall = float(shares.diagonal().sum())
    centred = shares - shares.mean(0) - shares.mean(1, keepdim=True) + shares.mean()  # (N, N)
    variance = float(centred.square().sum()) / (len(y) - 1)
    words = f"{100 * recall:.0f} % of {where} are right (mean over classes), {100 * chance:.0f} % by guessing"
    return Evidence((recall - chance) / (1 - chance), variance / (1 - chance) ** 2, words)


def _of_targets(answers: Tensor, y: Tensor, where: str) -> Evidence:
    """R², the mean over targets: (N, D), (N, D)."""
    y = y.double()
    apart = (y - y.mean(0)).square()  # (N, D)
    explained = ((apart - (y - answers).square()) / apart.mean(0)).mean(1)  # (N, D) -> (N,)
    r2 = float(explained.mean())
    return Evidence(r2, float(explained.var()) / len(y), f"R² is {r2:.2f} on {where}")


def _varies(y: Tensor, classes: bool) -> bool:
    """Whether there is anything to tell apart."""
    return len(y) > 1 and (len(y.unique()) > 1 if classes else bool((y.var(0) > 0).all()))


def _answers(model: ContinualModel, task: int, data: TaskData, classes: bool, generator: Generator) -> Tensor:
    """Classes (N,), or predictions (N, D)."""
    if not _varies(data.y, classes):
        return data.y[:0]
    outputs = predictive_outputs(model, data.x, task, SAMPLES, generator=generator)  # (S, N, C)
    return log_predictive(log_likelihoods(outputs)).argmax(1) if classes else outputs.double().mean(0)


def _some(data: TaskData, most: int, generator: Generator) -> TaskData:
    """At most this many examples, in random order."""
    rows = torch.randperm(len(data.x), generator=generator)[:most]
    return TaskData(data.x[rows], data.y[rows])

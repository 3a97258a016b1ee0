"""Calibrated classes: a temperature, and how often even a certain answer is wrong.

Both are fitted to whether the most probable class was right, for examples that were not learned from.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from metareplay.inference.predictive import log_likelihoods, log_predictive

TEMPERATURES = torch.logspace(-0.8, 1.6, 49, dtype=torch.float64)
DOUBTS = torch.logspace(-4, -0.3, 38, dtype=torch.float64)


@dataclass(frozen=True)
class ClassCalibration:
    """How one task's outputs become probabilities."""

    temperature: Tensor
    """By which outputs are divided ()."""
    doubt: Tensor
    """The share of every answer that follows the class frequencies ()."""
    prior: Tensor
    """Class frequencies (C,)."""

    @classmethod
    def stored(cls, tensors: Mapping[str, Tensor]) -> "ClassCalibration":
        """The inverse of ``tensors``."""
        return cls(tensors["temperature"], tensors["doubt"], tensors["prior"])

    def tensors(self) -> dict[str, Tensor]:
        """To be stored with the task."""
        return {"temperature": self.temperature, "doubt": self.doubt, "prior": self.prior}

    def log_likelihoods(self, outputs: Tensor) -> Tensor:
        """log p(y | w, x) of each weight sample, calibrated: (S, N, C) -> (S, N, C), float64."""
        if len(self.prior) == 1:
            return log_likelihoods(outputs)
        certain = log_likelihoods(outputs.double() / self.temperature) + (-self.doubt).log1p()
        return torch.logaddexp(certain, self.doubt.log() + self.prior.log())


def frequencies(labels: Tensor, classes: int) -> Tensor:
    """How often each class occurs, as if each had occurred once more (C,)."""
    counts = torch.bincount(labels, minlength=classes).double() + 1.0
    return counts / counts.sum()


def fit_classes(outputs: Tensor, right: Tensor, share: Tensor, prior: Tensor) -> ClassCalibration:
    """From outputs (S, N, C), whether each answer is right (N,), and for how many examples each counts (N,).

    The most probable temperature and doubt, when temperatures near 1 are more probable beforehand, and half an
    answer more has been wrong.
    """
    chosen = log_predictive(log_likelihoods(outputs)).argmax(1, keepdim=True)  # (N, 1)
    frequent = prior[chosen.squeeze(1)]  # (N,)
    losses = []
    for temperature in TEMPERATURES:
        log_probs = log_predictive(log_likelihoods(outputs / temperature))  # (N, C)
        confidence = log_probs.gather(1, chosen).squeeze(1).exp()  # (N,)
        mixed = (1 - DOUBTS).unsqueeze(1) * confidence + DOUBTS.unsqueeze(1) * frequent  # (doubts, N)
        mixed = mixed.clamp(1e-12, 1 - 1e-12)
        likelihood = torch.where(right, mixed.log(), (-mixed).log1p())  # (doubts, N)
        losses.append(0.5 * (temperature.log().square() - DOUBTS.log()) - (share * likelihood).sum(1))  # (doubts,)
    best = int(torch.stack(losses).argmin())
    return ClassCalibration(TEMPERATURES[best // len(DOUBTS)], DOUBTS[best % len(DOUBTS)], prior)

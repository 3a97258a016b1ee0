"""Prediction intervals: the noise of a task's targets, and conformal quantiles of its residuals."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from statistics import NormalDist

import torch
from torch import Tensor

from metareplay.inference.calibration.linear import linear_answers

LEAST_NOISE = 0.05
"""The least share of the squared residuals that is noise."""
MOST_SCORES = 400


@dataclass(frozen=True)
class TargetCalibration:
    """How far one task's targets lie from its predictions."""

    noise: Tensor
    """Standard deviation of targets around perfect predictions (D,)."""
    scores: Tensor
    """Sorted distances of targets from predictions, in standard deviations (M, D)."""
    centre: Tensor
    """Mean target (D,)."""
    spread: Tensor
    """Standard deviation of targets (D,)."""
    share: Tensor | None = None
    """What the network counts for in answers (D,); everything without it."""
    linear: Tensor | None = None
    """Coefficients of the linear fit that counts for the rest (F + 1, D)."""

    @classmethod
    def stored(cls, tensors: Mapping[str, Tensor]) -> "TargetCalibration":
        """The inverse of ``tensors``."""
        required = (tensors["noise"], tensors["scores"], tensors["centre"], tensors["spread"])
        return cls(*required, tensors.get("share"), tensors.get("linear"))

    def tensors(self) -> dict[str, Tensor]:
        """To be stored with the task."""
        found = {"noise": self.noise, "scores": self.scores, "centre": self.centre, "spread": self.spread}
        if self.share is not None and self.linear is not None:
            found |= {"share": self.share, "linear": self.linear}
        return found

    def mean(self, x: Tensor, of_network: Tensor) -> Tensor:
        """The answer to inputs, from that of the network: (N, ...), (N, D) -> (N, D).

        How far weight samples differ stays a measure of how little is known about an input, whatever the share.
        """
        if self.share is None or self.linear is None:
            return of_network
        return self.share * of_network + (1 - self.share) * linear_answers(self.linear, x)

    def reach(self, coverage: float) -> Tensor:
        """The standard deviations within which this share of targets lies (D,): split conformal.

        Beyond what the residuals show, those of a normal distribution with a variance estimated from as many.
        """
        count = len(self.scores)
        rank = ceil((count + 1) * coverage)
        if rank <= count:
            return self.scores[rank - 1]
        normal = NormalDist().inv_cdf((1 + coverage) / 2)
        student = normal + (normal**3 + normal) / (4 * max(count - 1, 1))
        return torch.maximum(self.scores[-1], torch.full_like(self.scores[-1], student))


def fit_targets(residuals: Tensor, std: Tensor, targets: Tensor) -> TargetCalibration:
    """From residuals and standard deviations over weight samples of unseen examples (M, D), and the targets (N, D)."""
    residuals, std, targets = residuals.double(), std.double(), targets.double()
    squared = residuals.square().mean(0)  # (M, D) -> (D,)
    noise = torch.maximum(squared - std.square().mean(0), LEAST_NOISE * squared).clamp_min(1e-12).sqrt()
    scores = (residuals.abs() / (std.square() + noise.square()).sqrt()).sort(0).values  # (M, D)
    if len(scores) > MOST_SCORES:  # quantiles are enough
        scores = scores[torch.linspace(0, len(scores) - 1, MOST_SCORES).round().long()]
    return TargetCalibration(noise, scores, targets.mean(0), targets.std(0, correction=0))

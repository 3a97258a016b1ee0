"""The fixed prior: an isotropic Gaussian around zero."""

from dataclasses import dataclass
from math import log, pi
from typing import final

import torch
from torch import Tensor

from metareplay.posteriors.families.gaussian import MeanFieldGaussian


@final
@dataclass(frozen=True)
class GaussianPrior:
    """The fixed prior p(W) = N(0, variance I)."""

    variance: float = 1.0

    def log_prob(self, weights: Tensor) -> Tensor:
        """Log-density of weight samples: (n, W) -> (n,)."""
        return self.log_prob_of(weights.square().sum(-1), weights.shape[-1])  # (n, W) -> (n,)

    def log_prob_of(self, squares: Tensor, num_weights: int) -> Tensor:
        """Log-density of ``num_weights`` weights from the sum of their squares: (n,) -> (n,)."""
        return -0.5 / self.variance * squares - 0.5 * num_weights * log(2 * pi * self.variance)

    def score(self, weights: Tensor) -> Tensor:
        """The gradient of the log-density at weight samples: (n, W) -> (n, W)."""
        return weights / -self.variance

    def over(self, num_weights: int) -> MeanFieldGaussian:
        """The same prior over a given number of weights, so that it can be sampled."""
        return MeanFieldGaussian(torch.zeros(num_weights), torch.full((num_weights,), self.variance**0.5))

"""Likelihoods: how network outputs explain targets. A task sees only its own outputs."""

from typing import Protocol, final

import torch.nn.functional as F
from torch import Tensor


class Likelihood(Protocol):
    """Mean negative log-likelihood per example, averaged over weight samples and the batch."""

    def nll(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Outputs (S, B, C) and targets (B,) or (B, C) -> scalar."""
        ...


@final
class Categorical:
    """Softmax over the task's own outputs."""

    def nll(self, outputs: Tensor, y: Tensor) -> Tensor:
        samples = outputs.shape[0]
        return F.cross_entropy(outputs.flatten(0, 1), y.repeat(samples))  # SM eq. nll:classification; (S*B, C) -> ()


@final
class Gaussian:
    """Normal with fixed standard deviation: a scaled squared error, up to a constant."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def nll(self, outputs: Tensor, y: Tensor) -> Tensor:
        squared = (outputs - y).square().sum(-1)  # (S, B, D) -> (S, B)
        return squared.mean() / (2 * self.scale**2)  # SM eq. nll:regression, constants dropped

"""Likelihoods: how network outputs explain targets. A task sees only its own outputs."""

from math import log
from typing import ClassVar, Protocol, final

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from metareplay.settings import Settings


class LikelihoodSettings(Settings):
    """The likelihood for regression."""

    group: ClassVar[str] = "posterior"
    likelihood_scale: float = Field(
        0.05, gt=0, description="standard deviation of the Gaussian likelihood (regression only)"
    )


class Likelihood(Protocol):
    """Mean negative log-likelihood per example, averaged over weight samples and the batch."""

    def nll(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Outputs (S, B, C) and targets -> scalar; targets are classes (B,), probabilities (B, C) or real (B, C)."""
        ...

    def distillation(self, outputs: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
        """Mean cross-entropy from a teacher's predictions to these outputs: (S, B, C) and (B, C' <= C) -> scalar.

        At a temperature T both are softened, and the cross-entropy is multiplied by T^2.
        """
        ...

    def uncertainty(self, outputs: Tensor) -> Tensor:
        """Mean uncertainty of the predictions for a batch: (S, B, C) -> scalar."""
        ...

    def constant_nll(self, y: Tensor) -> float:
        """The mean negative log-likelihood of the best constant answer to these targets."""
        ...


@final
class Categorical:
    """Softmax over the task's own outputs."""

    def nll(self, outputs: Tensor, y: Tensor) -> Tensor:
        targets = y.repeat(outputs.shape[0], *[1] * (y.dim() - 1))  # (B, ...) -> (S*B, ...)
        # SM eq. nll:classification; soft: -sum_y p*(y) log p(y); (S*B, C) -> ()
        return F.cross_entropy(outputs.flatten(0, 1), targets)

    def distillation(self, outputs: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
        """Soft targets; classes that the teacher did not know have probability zero."""
        soft = (teacher / temperature).softmax(-1)  # (B, C')
        targets = F.pad(soft, (0, outputs.shape[-1] - teacher.shape[-1]))  # (B, C') -> (B, C)
        return temperature**2 * self.nll(outputs / temperature, targets)

    def uncertainty(self, outputs: Tensor) -> Tensor:
        """The entropy of the posterior predictive, the criterion Ent."""
        log_sum = outputs.double().log_softmax(-1).logsumexp(0)  # (S, B, C) -> (B, C)
        log_p = log_sum - log(len(outputs))  # SM eq. pred:dist:mc
        return -(log_p.exp() * log_p).sum(-1).mean()  # (B, C) -> ()

    def constant_nll(self, y: Tensor) -> float:
        """The entropy of the class frequencies."""
        frequencies = torch.bincount(y).double() / len(y)  # (N,) -> (C,)
        return float(torch.special.entr(frequencies).sum())


@final
class Gaussian:
    """Normal with a fixed standard deviation: a scaled squared error, up to a constant."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def nll(self, outputs: Tensor, y: Tensor) -> Tensor:
        squared = (outputs - y).square().sum(-1)  # (S, B, D) -> (S, B)
        return squared.mean() / (2 * self.scale**2)  # SM eq. nll:regression, constants dropped

    def distillation(self, outputs: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
        """Two normals of the same scale: the squared error against the teacher's means, whatever the temperature."""
        return self.nll(outputs, teacher)

    def uncertainty(self, outputs: Tensor) -> Tensor:
        """The variance over weight samples."""
        return outputs.double().var(0, correction=0).sum(-1).mean()  # (S, B, D) -> ()

    def constant_nll(self, y: Tensor) -> float:
        """That of the mean."""
        return float(y.double().var(0, correction=0).sum()) / (2 * self.scale**2)  # (N, D) -> ()

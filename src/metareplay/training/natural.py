"""IVON, improved variational online Newton: natural-gradient steps for Gaussian posteriors [Shen2024; Lin2020].

For q = N(m, sigma^2) over single weights and the prior p = N(m0, s0^2), minimise N E_q[l] + kappa KL(q || p), where l
is the mean loss of an example. With lambda = N / kappa, its gradients with respect to m and to sigma^2 vanish where

    E_q[l'] + delta (m - m0) = 0   and   1 / sigma^2 = lambda (E_q[l''] + delta),   with delta = 1 / (lambda s0^2),

because KL contributes (m - m0) / s0^2 and (1 / s0^2 - 1 / sigma^2) / 2. So the prior enters in closed form: a fixed
prior has m0 = 0, that of variational continual learning is the last posterior. A step has one weight sample, by which
automatic differentiation gives g, an estimate of E_q[l'], and the slope of the loss along sigma; by Price's theorem
h = slope / sigma (which is g (w - m) / sigma^2) estimates E_q[l'']. Natural-gradient descent moves the precision over
lambda, P = 1 / (lambda sigma^2), towards h + delta and the mean by a Newton step:

    u = rho (h + delta - P) / P,   P <- P (1 + u + u^2 / 2),   m <- m - rate (gbar + delta (m - m0)) / P,

where gbar is the momentum of g, bias-corrected. The term u^2 / 2 is the second-order correction of a step on the
manifold of positive precisions: 1 + u + u^2 / 2 >= 1/2 for any u, so P stays positive whatever h is.
"""

from typing import final

import torch
from torch import Tensor, nn

from metareplay.errors import ConfigError
from metareplay.optimisers import PlainOptimiser
from metareplay.posteriors.base import Prior
from metareplay.posteriors.families.gaussian import RHO_OFFSET, MeanFieldGaussian, rho_of, scale_of
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.training.settings import TrainingSettings

PART = 2**16
"""Weights that are moved at once: their temporary tensors stay in the processor's cache."""


@final
class Ivon(PlainOptimiser):
    """Trains theta = [means, rhos] (2W,) by gradients of the loss without its prior-matching term."""

    def __init__(
        self,
        theta: nn.Parameter,
        settings: TrainingSettings,
        prior: Prior,
        *,
        examples: float,
        prior_scale: float,
        offset: float = RHO_OFFSET,
    ) -> None:
        super().__init__([theta], {"lr": settings.ivon_rate})
        self.offset = offset
        """Of rho, as in the posterior."""
        self.examples, self.evidence = examples, examples / prior_scale
        """N, and lambda = N / kappa."""
        self.momentum, self.decay, self.start = settings.ivon_momentum, settings.ivon_decay, settings.ivon_start
        like = theta.detach().chunk(2)[0]  # (W,)
        means, variances = _moments(prior)
        self.prior = (means + torch.zeros_like(like), 1 / (self.evidence * (variances + torch.zeros_like(like))))
        """Its means m0 and delta: (W,) each."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Move means and scales by the gradients of one weight sample."""
        theta: nn.Parameter = self.param_groups[0]["params"][0]
        if theta.grad is None:
            return
        (mean, rho), (by_mean, by_rho) = theta.data.chunk(2), theta.grad.chunk(2)  # (2W,) -> (W,) twice, views
        state = self.state[theta]
        if not state:  # the first step only makes sure that no precision is so low that steps would be too large
            state["step"], state["momentum"] = torch.zeros(()), torch.zeros_like(mean)
            precision = (self.evidence * scale_of(rho, self.offset).square()).reciprocal()
            state["precision"] = precision.maximum(self.start + self.prior[1])
            rho.copy_(rho_of((self.evidence * state["precision"]).rsqrt(), self.offset))
            return
        state["step"] += 1
        correction = 1 - self.momentum ** float(state["step"])
        moved = (mean, rho, state["momentum"], state["precision"], by_mean, by_rho)
        for part in zip(*(tensor.split(PART) for tensor in (*moved, *self.prior)), strict=True):
            self._move(*part, correction=correction)

    def _move(
        self,
        mean: Tensor,
        rho: Tensor,
        momentum: Tensor,
        precision: Tensor,
        by_mean: Tensor,
        by_rho: Tensor,
        prior_mean: Tensor,
        delta: Tensor,
        *,
        correction: float,
    ) -> None:
        """Some of the weights, in place."""
        scale = (self.evidence * precision).rsqrt_()
        slope = torch.expm1(-scale).mul_(scale).mul_(-self.examples)  # N sigma dsigma/drho; softplus' = 1 - exp(-sigma)
        wanted = (by_rho / slope).add_(delta)  # h + delta; (W,)
        u = wanted.div_(precision).sub_(1).mul_(1 - self.decay)
        precision.mul_(torch.addcmul(1 + u, u, u, value=0.5))
        momentum.mul_(self.momentum).add_(by_mean, alpha=(1 - self.momentum) / self.examples)
        towards = (mean - prior_mean).mul_(delta).add_(momentum, alpha=1 / correction)
        mean.addcdiv_(towards, precision, value=-self.param_groups[0]["lr"])
        rho.copy_(rho_of(torch.mul(precision, self.evidence, out=scale).rsqrt_(), self.offset))


def _moments(prior: Prior) -> tuple[Tensor | float, Tensor | float]:
    """Means and variances of a Gaussian prior: (W,) each, or one for all weights."""
    if isinstance(prior, GaussianPrior):
        return 0.0, prior.variance
    if isinstance(prior, MeanFieldGaussian):
        return prior.mean.detach(), prior.scale.detach().square()
    raise ConfigError(
        f"training.optimiser=ivon needs a Gaussian prior, and this one is {type(prior).__name__}; choose adam"
    )

"""Tempering of the prior alone: p^beta instead of p [Henning2021, sm:sec:graceful:forgetting].

Not to be confused with ``prior_scale``, which scales the prior-matching term as a whole, the entropy included.
"""

from dataclasses import dataclass, replace
from typing import final

from torch import Tensor

from metareplay.errors import ConfigError
from metareplay.posteriors.base import HasLogProb, Prior
from metareplay.posteriors.families.gaussian import MeanFieldGaussian
from metareplay.posteriors.priors.earlier import LastPosterior
from metareplay.posteriors.priors.gaussian import GaussianPrior


@final
@dataclass(frozen=True)
class Tempered:
    """p^power up to normalisation: -KL(q || p^beta) = -E_q[log q - beta log p] + log Z_beta."""

    prior: HasLogProb
    power: float

    def log_prob(self, weights: Tensor) -> Tensor:
        """Log-density of weight samples up to a constant: (n, W) -> (n,)."""
        return self.power * self.prior.log_prob(weights)  # beta log p(W); (n, W) -> (n,)


def tempered(prior: Prior, power: float) -> Prior:
    """The prior raised to a power, normalised where the constant is known: a power below 1 broadens it."""
    if power == 1:
        return prior
    if isinstance(prior, GaussianPrior):
        return GaussianPrior(prior.variance / power)  # N(0, v)^beta is proportional to N(0, v / beta)
    if isinstance(prior, MeanFieldGaussian):
        return MeanFieldGaussian(prior.mean, prior.scale / power**0.5)
    if isinstance(prior, LastPosterior):
        return replace(prior, power=prior.power * power)
    if isinstance(prior, HasLogProb):
        return Tempered(prior, power)
    raise ConfigError(f"{type(prior).__name__} cannot be raised to a power; set posterior.prior_power to 1")

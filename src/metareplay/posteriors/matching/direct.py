"""The prior-matching term KL(q || p) of the ELBO [Henning2021, SM eq. elbo] where nothing has to be learned: closed form or Monte Carlo."""

from typing import final

from torch import Generator, Tensor

from metareplay.errors import ConfigError
from metareplay.posteriors.base import HasLogProb, HasNegativeEntropy, Posterior, Prior, StatelessMatching
from metareplay.posteriors.divergences import kl, monte_carlo_kl
from metareplay.posteriors.families.mixture import Mixture


def prior_matching(q: Posterior, p: Prior, samples: int, *, generator: Generator) -> Tensor:
    """KL(q || p), up to a constant for families whose entropy is known only so far: a scalar."""
    if kl.supports(type(q), type(p)):
        return kl(q, p)
    if isinstance(q, Mixture):  # 1/M sum_m KL(q_m || p), never below KL(q || p): the KL divergence is convex in q; (M,) -> ()
        return prior_matching(q.each, p, samples, generator=generator).mean()
    if not isinstance(p, HasLogProb):
        raise ConfigError(f"the prior-matching term of {type(q).__name__} needs a prior with a density; {type(p).__name__} has none")
    if isinstance(q, HasNegativeEntropy):
        weights = q.rsample(samples, generator=generator)  # (n, W)
        return q.negative_entropy() - p.log_prob(weights).mean()  # Monte Carlo cross-entropy; (n,) -> ()
    if isinstance(q, HasLogProb):
        return monte_carlo_kl(q, p, samples, generator=generator)  # E_q[log q - log p]: sm:sec:pr:implicit, invertible generators
    raise ConfigError(f"the prior-matching term of {type(q).__name__} needs a closed form, a known entropy or a density; it has none")


@final
class DirectMatching(StatelessMatching):
    """The term of posteriors with a closed form, a known entropy or a density."""

    def term(self, q: Posterior, p: Prior, samples: int, *, generator: Generator) -> Tensor:
        return prior_matching(q, p, samples, generator=generator)

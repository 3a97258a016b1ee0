"""The prior-matching term KL(q || p) of the ELBO [Henning2021, SM eq. elbo] where nothing has to be learned: closed form or Monte Carlo."""

from typing import final

from torch import Generator, Tensor

from metareplay.errors import ConfigError
from metareplay.posteriors.base import HasLogProb, HasNegativeEntropy, Posterior, Prior, StatelessMatching
from metareplay.posteriors.divergences import kl


def prior_matching(q: Posterior, p: Prior, samples: int, *, generator: Generator) -> Tensor:
    """KL(q || p), up to a constant for families whose entropy is known only so far: a scalar."""
    if kl.supports(type(q), type(p)):
        return kl(q, p)
    if isinstance(q, HasNegativeEntropy) and isinstance(p, HasLogProb):
        cross_entropy = -p.log_prob(q.rsample(samples, generator=generator)).mean()  # Monte Carlo over q; (n,) -> ()
        return q.negative_entropy() + cross_entropy
    raise ConfigError(f"the prior-matching term of {type(q).__name__} needs a closed form or a known entropy; it has neither")


@final
class DirectMatching(StatelessMatching):
    """The term of posteriors with a closed form or a known entropy."""

    def term(self, q: Posterior, p: Prior, samples: int, *, generator: Generator) -> Tensor:
        return prior_matching(q, p, samples, generator=generator)

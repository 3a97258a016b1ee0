"""The prior-matching term KL(q || p) of the ELBO [Henning2021, SM eq. elbo]: the posterior's own way, closed form, or Monte Carlo."""

from torch import Generator, Tensor

from metareplay.errors import ConfigError
from metareplay.posteriors.base import HasLogProb, HasNegativeEntropy, HasPriorMatching, Posterior
from metareplay.posteriors.divergences import kl


def prior_matching(q: Posterior, p: HasLogProb, samples: int, *, generator: Generator) -> Tensor:
    """KL(q || p), up to a constant for families whose entropy is known only so far: a scalar.

    Implicit posteriors give a scalar that has its gradient and the value of the cross-entropy.
    """
    if isinstance(q, HasPriorMatching):
        return q.matching(p, samples, generator=generator)
    if kl.supports(type(q), type(p)):
        return kl(q, p)
    if isinstance(q, HasNegativeEntropy):
        cross_entropy = -p.log_prob(q.rsample(samples, generator=generator)).mean()  # Monte Carlo over q; (n,) -> ()
        return q.negative_entropy() + cross_entropy
    raise ConfigError(f"the prior-matching term of {type(q).__name__} needs a closed form or a known entropy; it has neither")

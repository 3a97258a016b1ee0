"""The prior-matching term of implicit posteriors by the spectral Stein gradient estimator [Henning2021, sm:sec:ssge]."""

from typing import final

from torch import Generator, Tensor

from metareplay.errors import ConfigError
from metareplay.posteriors.base import HasLogProb, Posterior, Prior, StatelessMatching
from metareplay.posteriors.settings import PosteriorSettings
from metareplay.posteriors.ssge import ssge_score


@final
class SSGEMatching(StatelessMatching):
    """Has the gradient of KL(q || p), estimated; its value is the cross-entropy alone, for nobody knows the entropy.

    The samples that tell SSGE of q are also those that it pushes apart and that the prior draws in: at least S of them.
    """

    def __init__(self, settings: PosteriorSettings) -> None:
        self.settings = settings

    def term(self, q: Posterior, p: Prior, samples: int, *, generator: Generator) -> Tensor:
        if not isinstance(p, HasLogProb):
            raise ConfigError(f"SSGE needs a prior with a known density; {type(p).__name__} has none")
        support = self.settings.ssge_samples
        weights = q.rsample(max(samples, support), generator=generator)  # (n, W)
        width, most, ratio = self.settings.ssge_width, self.settings.ssge_eigenfunctions, self.settings.ssge_ratio
        score = ssge_score(weights[:support], weights, width=width, eigenfunctions=most, ratio=ratio)  # (n, W)
        entropy = (score * (weights - weights.detach())).sum(-1).mean()  # value 0, gradient of E log q: last line of eq. sm:eq:elbo:grad
        return entropy - p.log_prob(weights).mean()  # Monte Carlo cross-entropy; (n,) -> ()

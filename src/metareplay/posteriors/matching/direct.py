"""The prior-matching term KL(q || p) of the ELBO [Henning2021, SM eq. elbo] in closed form or by Monte Carlo."""

from collections.abc import Mapping
from typing import final

from torch import Generator, Tensor

from metareplay.errors import ConfigError
from metareplay.posteriors.base import (
    FamilyPart,
    HasLogProb,
    HasNegativeEntropy,
    MatchingPart,
    Posterior,
    Prior,
    StatelessMatching,
    register_matching,
)
from metareplay.posteriors.divergences import kl, monte_carlo_kl
from metareplay.posteriors.families.mixture import Mixture
from metareplay.posteriors.priors.earlier import EarlierPriorSettings
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.posteriors.settings import MonteCarloSettings
from metareplay.settings import Composition


def prior_matching(q: Posterior, p: Prior, samples: int, *, generator: Generator) -> Tensor:
    """KL(q || p), a scalar; up to a constant for families whose entropy is known only up to one."""
    if kl.supports(type(q), type(p)):
        return kl(q, p)
    if isinstance(q, Mixture):
        # 1/M sum_m KL(q_m || p) >= KL(q || p), since the KL divergence is convex in q; (M,) -> ()
        return prior_matching(q.components, p, samples, generator=generator).mean()
    if not isinstance(p, HasLogProb):
        raise ConfigError(
            f"the prior-matching term of {type(q).__name__} needs a prior with a density; {type(p).__name__} has none"
        )
    if isinstance(q, HasNegativeEntropy):
        weights = q.rsample(samples, generator=generator)  # (n, W)
        return q.negative_entropy() - p.log_prob(weights).mean()  # Monte Carlo cross-entropy; (n,) -> ()
    if isinstance(q, HasLogProb):
        # E_q[log q - log p]: sm:sec:pr:implicit, invertible generators
        return monte_carlo_kl(q, p, samples, generator=generator)
    raise ConfigError(
        f"the prior-matching term of {type(q).__name__} needs a closed form, a known entropy or a density; it has none"
    )


class DirectSettings(MonteCarloSettings):
    """Weight samples for terms without a closed form."""

    def without_effect(self, composition: Composition) -> Mapping[str, str]:
        """A closed form needs no samples; with a mixture of earlier posteriors there is no closed form."""
        family = composition.parts()["family"]
        if not isinstance(family, FamilyPart) or _mixes_earlier(composition):
            return {}
        if family.point:
            return {"posterior.prior_samples": "point estimates have no prior-matching term"}
        if kl.supports(family.posterior, GaussianPrior):
            return {"posterior.prior_samples": "its prior-matching term has a closed form"}
        return {}


def _mixes_earlier(composition: Composition) -> bool:
    mixing = composition.find(EarlierPriorSettings)
    return mixing is not None and mixing.prior_from_earlier > 0


@final
class DirectMatching(StatelessMatching):
    """The term of posteriors with a closed form, a known entropy or a density."""

    def __init__(self, samples: int = 1) -> None:
        self.samples = samples

    def term(self, q: Posterior, p: Prior, *, generator: Generator) -> Tensor:
        return prior_matching(q, p, self.samples, generator=generator)


register_matching(
    MatchingPart(
        name="direct",
        phrase="prior-matching terms in closed form, or from weight samples",
        settings=(DirectSettings,),
        build=lambda parts, context: DirectMatching(parts.get(DirectSettings).prior_samples),
    )
)

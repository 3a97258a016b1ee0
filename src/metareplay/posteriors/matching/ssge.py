"""Prior matching of implicit posteriors by the spectral Stein gradient estimator [Henning2021, sm:sec:ssge]."""

from dataclasses import replace
from typing import final

import torch
from pydantic import Field
from torch import Generator, Tensor

from metareplay.kernels.with_score import with_score
from metareplay.posteriors.base import (
    HasLogProb,
    HasSamples,
    MatchingPart,
    Posterior,
    Prior,
    StatelessMatching,
    register_matching,
)
from metareplay.posteriors.families.implicit import Implicit
from metareplay.posteriors.matching.ssge_score import Choices, score_coefficients, ssge_score
from metareplay.posteriors.priors.earlier import LastPosterior
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.posteriors.products import NoisyProducts, distances_from
from metareplay.posteriors.settings import MonteCarloSettings


class SSGESettings(MonteCarloSettings):
    """The spectral Stein gradient estimator."""

    ssge_samples: int = Field(
        10,
        ge=1,
        description="weight samples S for estimating the gradient of the log-density and evaluating the prior",
    )
    ssge_width: float | None = Field(
        None, gt=0, description="width of the RBF kernel; null: the median distance between samples"
    )
    ssge_eigenfunctions: int | None = Field(
        None, ge=1, description="at most this many eigenfunctions J; null: determined by ssge_ratio"
    )
    ssge_ratio: float = Field(
        0.95, gt=0, le=1, description="fraction of the sum of eigenvalues that the J largest exceed; 1: all"
    )


@final
class SSGEMatching(StatelessMatching):
    """Estimates the gradient of KL(q || p); the value is the part of the cross-entropy for which p has a density.

    The entropy is unknown, and so is the density of a prior that can only be sampled. The samples from which the score
    of q is estimated, at least S, are also those at which the gradient is evaluated. Where p is estimated too, q is
    estimated from separate samples, so that both estimates have the same bias and the gradient vanishes at q = p; both
    are estimated around Gaussians, so that p attracts from a distance.
    """

    def __init__(self, settings: SSGESettings) -> None:
        self.settings = settings
        most, ratio = settings.ssge_eigenfunctions, settings.ssge_ratio
        self._sorted: tuple[LastPosterior, LastPosterior] | None = None
        self._choices: Choices = {"width": settings.ssge_width, "eigenfunctions": most, "ratio": ratio}

    def term(self, q: Posterior, p: Prior, *, generator: Generator) -> Tensor:
        support = self.settings.ssge_samples
        count = max(self.settings.prior_samples, support)
        q, p = self._oldest_first(q, p)
        if isinstance(q, Implicit) and isinstance(p, GaussianPrior) and q.products_pay(count):
            return self._from_products(q, p, count, generator=generator)
        weights = q.rsample(count, generator=generator)  # (n, W)
        if isinstance(p, HasLogProb):
            known = weights if count == support else weights[:support]  # (S, W)
            entropy = with_score(self._score(known, weights, far=False), weights)  # value 0, gradient of E log q
            return entropy - p.log_prob(weights).mean()  # Monte Carlo cross-entropy; (n,) -> ()
        known = q.rsample(support, generator=generator).detach()
        value, prior_score = self.sampled_prior(p, weights.detach(), generator=generator)
        score = self._score(known, weights, far=True, onto=prior_score.neg_())
        return value + with_score(score, weights)  # E log q - E log p

    def _oldest_first(self, q: Posterior, p: Prior) -> tuple[Posterior, Prior]:
        """Both over weights in the order of generation: SSGE does not depend on it, and it saves reordering."""
        if not (isinstance(q, Implicit) and isinstance(p, LastPosterior) and isinstance(p.last, Implicit)):
            return q, p
        if not q.is_put_in_order or q.places is not p.last.places:
            return q, p
        if self._sorted is None or self._sorted[0] is not p:
            as_generated = replace(p, last=p.last.as_generated(), new=p.new.sort().values)  # new weights come last
            self._sorted = (p, as_generated)
        return q.as_generated(), self._sorted[1]

    def _from_products(self, q: Implicit, p: GaussianPrior, count: int, *, generator: Generator) -> Tensor:
        """The same from inner products only: the scores of q and p are linear combinations of samples (products.py)."""
        samples = q.factored(count, generator=generator)
        live, squares, known = samples.products(), samples.distances(), self.settings.ssge_samples  # (n, n) twice
        products = live.detach()
        if not products.isfinite().all():
            return live.sum().to(q.theta.dtype) * float("nan")  # the training loop reports the divergence
        along = torch.eye(count, dtype=products.dtype, device=products.device)
        if q.noise_std > 0:
            noise = NoisyProducts.drawn(products, q.noise_std, q.num_weights, generator=generator)
            products, squares = products + noise.added, squares + distances_from(noise.added)
            along = along + q.noise_std * noise.along
        slopes = along / p.variance  # of -log p; times the samples without noise; (n, n)
        slopes += score_coefficients(squares.clamp_min(0), known, count, **self._choices)[0] @ along[:known]  # of log q
        pull = (slopes * live).sum() / count  # mean over samples of slope times weights
        value = -p.log_prob_of(products.diagonal(), q.num_weights).mean()
        return (value + pull - pull.detach()).to(q.theta.dtype)

    def sampled_prior(self, p: HasSamples, weights: Tensor, *, generator: Generator) -> tuple[Tensor, Tensor]:
        """The known part of -E log p, a scalar, and the gradient of log p at each point: (n, W) -> (n, W)."""
        if not isinstance(p, LastPosterior):
            samples = p.rsample(self.settings.ssge_samples, generator=generator).detach()  # (S, W)
            return weights.new_zeros(()), self._score(samples, weights, far=True)
        known, unknown = p.old_and_new
        score, new = torch.zeros_like(weights), unknown.take(weights)  # (n, W), (n, W - C)
        samples = known.take(p.last.rsample(self.settings.ssge_samples, generator=generator).detach())  # (S, C)
        # SSGE at samples of another distribution
        estimate = self._score(samples, known.take(weights), far=True, onto=known.take(score))
        known.put(score, estimate)
        unknown.put(score, p.fixed.score(new))  # exact for a new head
        return -p.power * p.fixed.log_prob(new).mean(), score.mul_(p.power)  # beta log p of sm:sec:graceful:forgetting

    def _score(self, samples: Tensor, at: Tensor, *, far: bool, onto: Tensor | None = None) -> Tensor:
        """The score of the samples' distribution, (S, W), at points (n, W) that may be ``far`` from them: (n, W)."""
        return ssge_score(samples, at, around_gaussian=far, onto=onto, **self._choices)


register_matching(
    MatchingPart(
        name="ssge",
        phrase="implicit posteriors trained by SSGE",
        settings=(SSGESettings,),
        build=lambda parts, context: SSGEMatching(parts.get(SSGESettings)),
    )
)

"""Prior matching of implicit posteriors by the spectral Stein gradient estimator [Henning2021, sm:sec:ssge]."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple, final

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
    PriorSource,
    StatelessMatching,
    register_matching,
)
from metareplay.posteriors.families.implicit import Implicit
from metareplay.posteriors.matching.ssge_score import Choices, score_coefficients, ssge_score
from metareplay.posteriors.priors.earlier import LastPosterior
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.posteriors.products import NoisyProducts, distances_from
from metareplay.posteriors.settings import BayesianSettings, MonteCarloSettings
from metareplay.settings import Composition


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
    ssge_below: bool = Field(
        False,
        description="J is the number of eigenvalues whose sum, with all larger ones, stays below ssge_ratio, at least "
        "one, as in the published runs; false: the least number that exceeds it",
    )
    ssge_zero_distances: bool = Field(
        False,
        description="the median distance counts each sample's distance to itself, as in the published runs; false: "
        "distances between different samples only",
    )
    ssge_apart: bool = Field(
        False,
        description="as in the published runs, evaluate the prior at prior_samples samples of its own and the entropy "
        "at train_samples others, estimated from at least ssge_samples, and add the latter's gradient after clipping; "
        "false: one set of samples, and clipped",
    )

    def without_effect(self, composition: Composition) -> Mapping[str, str]:
        """What concerns the ratio or the median alone; a prior that is estimated, too."""
        unused = dict(super().without_effect(composition))
        if self.ssge_ratio == 1:
            unused["posterior.ssge_below"] = "posterior.ssge_ratio=1 means all eigenvalues"
        if self.ssge_width is not None:
            unused["posterior.ssge_zero_distances"] = (
                "the kernel has a fixed width; set posterior.ssge_width=null for the median distance"
            )
        strategy = composition.parts()["strategy"]
        if isinstance(strategy, PriorSource) and strategy.recursive:
            unused["posterior.ssge_apart"] = (
                "the last posterior is estimated by SSGE too, and at the same samples, so that both have the same bias"
            )
        return unused


class Drawn(NamedTuple):
    """Inner products of weight samples that are never formed."""

    live: Tensor
    """Of the samples without noise; gradients reach the left ones (n, n)."""
    products: Tensor
    """With noise, without gradients (n, n)."""
    squares: Tensor
    """Squared distances (n, n)."""
    along: Tensor
    """The samples with noise are this matrix times those without, given all inner products (n, n)."""

    def pulled(self, slopes: Tensor) -> Tensor:
        """Zero, with the gradient of the mean over samples of slope times weights; slopes as multiples (K, n)."""
        pull = (slopes * self.live[: len(slopes)]).sum() / len(slopes)
        return pull - pull.detach()


@final
class SSGEMatching(StatelessMatching):
    """Estimates the gradient of KL(q || p); the value is the part of the cross-entropy for which p has a density.

    The entropy is unknown, and so is the density of a prior that can only be sampled. The samples from which the score
    of q is estimated, at least S, are also those at which the gradient is evaluated. Where p is estimated too, q is
    estimated from separate samples, so that both estimates have the same bias and the gradient vanishes at q = p; both
    are estimated around Gaussians, so that p attracts from a distance.

    With ``ssge_apart`` a prior of known density is evaluated at samples of its own, and the entropy is a term of its
    own, whose gradient is not clipped.
    """

    def __init__(self, settings: SSGESettings, train_samples: int = 1) -> None:
        self.settings, self.train_samples = settings, train_samples
        self._sorted: tuple[LastPosterior, LastPosterior] | None = None
        self._choices = Choices(
            width=settings.ssge_width,
            eigenfunctions=settings.ssge_eigenfunctions,
            ratio=settings.ssge_ratio,
            below=settings.ssge_below,
            zeros=settings.ssge_zero_distances,
        )

    def unclipped_term(self, q: Posterior, p: Prior, *, generator: Generator) -> Tensor | None:
        """The gradient of E log q at K samples, estimated from these and S - K more; None if it is part of the term."""
        if not self.settings.ssge_apart or not isinstance(p, HasLogProb):
            return None
        count = max(self.train_samples, self.settings.ssge_samples)
        if isinstance(q, Implicit) and q.products_pay(count):
            drawn = self._drawn(q, count, generator)
            slopes = self._score_slopes(drawn, count, self.train_samples)  # (K, n)
            return drawn.pulled(slopes).to(q.theta.dtype)
        weights = q.rsample(count, generator=generator)  # (n, W)
        at = weights[: self.train_samples]  # (K, W)
        return with_score(self._score(weights, weights if len(at) == count else at, far=False), at)

    def _prior_alone(self, q: Posterior, p: HasLogProb, generator: Generator) -> Tensor:
        """The cross-entropy -E log p at samples of its own."""
        count = self.settings.prior_samples
        if isinstance(q, Implicit) and isinstance(p, GaussianPrior) and q.products_pay(count):
            drawn = self._drawn(q, count, generator)
            value = -p.log_prob_of(drawn.products.diagonal(), q.num_weights).mean()
            return (value + drawn.pulled(drawn.along / p.variance)).to(q.theta.dtype)
        return -p.log_prob(q.rsample(count, generator=generator)).mean()  # (n,) -> ()

    def term(self, q: Posterior, p: Prior, *, generator: Generator) -> Tensor:
        if self.settings.ssge_apart and isinstance(p, HasLogProb):
            return self._prior_alone(q, p, generator)
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
        drawn, known = self._drawn(q, count, generator), self.settings.ssge_samples
        slopes = drawn.along / p.variance  # of -log p; times the samples without noise; (n, n)
        slopes += self._score_slopes(drawn, known, count)  # of log q
        value = -p.log_prob_of(drawn.products.diagonal(), q.num_weights).mean()
        return (value + drawn.pulled(slopes)).to(q.theta.dtype)

    def _drawn(self, q: Implicit, count: int, generator: Generator) -> "Drawn":
        samples = q.factored(count, generator=generator)
        live, squares = samples.products(), samples.distances()  # (n, n) twice
        products = live.detach()
        along = torch.eye(count, dtype=products.dtype, device=products.device)
        if q.noise_std > 0 and bool(products.isfinite().all()):
            noise = NoisyProducts.drawn(products, q.noise_std, q.num_weights, generator=generator)
            products, squares = products + noise.added, squares + distances_from(noise.added)
            along = along + q.noise_std * noise.along
        return Drawn(live, products, squares.clamp_min(0), along)

    def _score_slopes(self, drawn: "Drawn", known: int, count: int) -> Tensor:
        """The score of q at the first ``count`` samples, estimated from the first ``known``; multiples (count, n)."""
        if not drawn.products.isfinite().all():
            return drawn.along[:count] * float("nan")  # the training loop reports the divergence
        near = score_coefficients(drawn.squares, known, len(drawn.along), **self._choices)[0]  # (n, S)
        return near[:count] @ drawn.along[:known]

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
        build=lambda parts, context: SSGEMatching(
            parts.get(SSGESettings), getattr(parts.find(BayesianSettings), "train_samples", 1)
        ),
    )
)

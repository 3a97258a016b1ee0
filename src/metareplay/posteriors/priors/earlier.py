"""Earlier posteriors as priors [Henning2021, sm:sec:prior:focused and sm:sec:graceful:forgetting].

Weights that did not exist when a posterior was learned (those of heads added later) follow the fixed prior.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import log
from typing import ClassVar, TypeVar, final

import torch
from pydantic import Field
from torch import Generator, Tensor

from metareplay.column_blocks import ColumnBlocks
from metareplay.errors import ConfigError
from metareplay.posteriors.base import FamilyPart, HasLogProb, HasSamples, Posterior, Prior
from metareplay.posteriors.families.flow import Flow
from metareplay.posteriors.families.gaussian import MeanFieldGaussian
from metareplay.posteriors.families.radial import Radial
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.seeding import normal
from metareplay.settings import Composition, Settings

Moments = TypeVar("Moments", bound=MeanFieldGaussian | Flow)
"""Distributions whose later weights are described by means and scales."""


@final
@dataclass(frozen=True)
class LastPosterior:
    """An implicit posterior as the next prior: old weights follow it, new ones independently follow the fixed prior.

    Its density is unknown; ``power`` tempers it nevertheless.
    """

    last: HasSamples
    fixed: GaussianPrior
    new: Tensor
    """True for the weights that the last posterior did not have: (W,) bool."""
    power: float = 1.0

    @cached_property
    def old_and_new(self) -> tuple[ColumnBlocks, ColumnBlocks]:
        """The columns of the weights that the last posterior had, and of the new weights."""
        old, new = (ColumnBlocks.of(torch.nonzero(chosen).flatten(), len(self.new)) for chosen in (~self.new, self.new))
        return old, new

    def rsample(self, n: int, *, generator: Generator) -> Tensor:
        """Samples (n, W), without gradients."""
        if self.power != 1:
            raise ConfigError(
                "a power of an implicit posterior cannot be sampled; set posterior.prior_power to 1, or choose SSGE"
            )
        with torch.no_grad():
            old = self.last.rsample(n, generator=generator)  # (n, W)
            noise = normal(*old.shape, generator=generator, like=old)
            return torch.where(self.new, self.fixed.variance**0.5 * noise, old)  # (n, W)


class EarlierPriorSettings(Settings):
    """How much of a task's prior comes from earlier tasks' posteriors."""

    group: ClassVar[str] = "strategy"
    prior_from_earlier: float = Field(
        0.0, ge=0, lt=1, description="share of the earlier tasks' posteriors in a new task's prior; 0: none"
    )

    def without_effect(self, composition: Composition) -> Mapping[str, str]:
        """The density must be known, including that of weights which earlier tasks did not have."""
        family = composition.parts()["family"]
        if isinstance(family, FamilyPart) and family.members is None and family.posterior in (MeanFieldGaussian, Flow):
            return {}
        reason = f"only single Gaussians or flows can be mixed into the prior, not {family.phrase}"
        return {"strategy.prior_from_earlier": reason}


@final
@dataclass(frozen=True)
class MixturePrior:
    """(1 - share) p + share * mean over earlier tasks of q_s: the weighted average of sm:sec:graceful:forgetting."""

    fixed: GaussianPrior
    earlier: HasLogProb
    """The posteriors of all T earlier tasks, batched: the log-density of weights (n, T, W) is (n, T)."""
    num_earlier: int
    share: float

    def log_prob(self, weights: Tensor) -> Tensor:
        """Log-density of weight samples: (n, W) -> (n,)."""
        repeated = weights.unsqueeze(1).expand(-1, self.num_earlier, -1)  # (n, W) -> (n, T, W)
        earlier = self.earlier.log_prob(repeated) + log(self.share / self.num_earlier)  # (n, T)
        fixed = self.fixed.log_prob(weights) + log(1 - self.share)  # (n,)
        return torch.cat([fixed.unsqueeze(1), earlier], dim=1).logsumexp(1)  # (n, 1 + T) -> (n,)


def with_fixed_prior(posterior: Moments, fixed: GaussianPrior, new: Tensor) -> Moments:
    """The same distribution, detached, but new weights follow the fixed prior; ``new`` (..., W) bool.

    A flow does not transform weights that were added later (they are independent Gaussians), so it is enough to change
    their means and scales.
    """
    mean = torch.where(new, 0.0, posterior.mean.detach())  # (..., W)
    scale = torch.where(new, fixed.variance**0.5, posterior.scale.detach())  # (..., W)
    return replace(posterior, mean=mean, scale=scale)


def as_prior(learned: Posterior) -> Prior:
    """A learned posterior as a prior: the posterior itself, with its density or its samples.

    A radial posterior is replaced by the Gaussian with its means and variances: its own density has a pole at the mean,
    so that a Monte Carlo estimate of the cross-entropy has infinite variance. The term still has its minimum at the
    learned posterior.
    """
    return learned.moments() if isinstance(learned, Radial) else learned

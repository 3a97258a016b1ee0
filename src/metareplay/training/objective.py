"""The composition of a step's loss, as the method's posterior family defines it."""

from typing import NamedTuple, Self

from metareplay.posteriors.base import FamilyPart
from metareplay.posteriors.families.gaussian import GaussianSettings
from metareplay.posteriors.settings import BayesianSettings
from metareplay.settings import Composition


class Objective(NamedTuple):
    """Weight samples of the data term, and the weight of the prior-matching term; a point has one sample, no prior."""

    train_samples: int = 1
    prior_scale: float = 1.0
    prior_power: float = 1.0
    local_reparametrisation: bool = False
    point: bool = False
    """Whether training steps use point estimates."""

    @classmethod
    def of(cls, parts: Composition) -> Self:
        """From the posterior family and its settings."""
        family = parts.parts()["family"]
        assert isinstance(family, FamilyPart)
        if family.point or family.point_in_training:
            return cls(point=True)
        bayesian, gaussian = parts.find(BayesianSettings), parts.find(GaussianSettings)
        if bayesian is None:
            return cls()
        local = gaussian is not None and gaussian.local_reparametrisation
        return cls(bayesian.train_samples, bayesian.prior_scale, bayesian.prior_power, local)

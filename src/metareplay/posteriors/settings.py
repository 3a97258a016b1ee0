"""Settings that several posteriors share: the prior, the number of weight samples, and the initialisation."""

from typing import ClassVar

from pydantic import Field

from metareplay.settings import Settings


class FixedPriorSettings(Settings):
    """The zero-mean Gaussian prior."""

    group: ClassVar[str] = "posterior"
    prior_variance: float = Field(1.0, gt=0, description="variance of the zero-mean Gaussian prior")


class BayesianSettings(FixedPriorSettings):
    """The weight of the prior, and the number of weight samples in a training step."""

    prior_scale: float = Field(
        1.0, ge=0, description="tempering: factor of the prior-matching term (1: no tempering, 0: no prior)"
    )
    prior_power: float = Field(
        1.0,
        gt=0,
        description="tempering of the prior alone: the power it is raised to; below 1 it is broader and weaker",
    )
    train_samples: int = Field(
        1, ge=1, description="weight samples K for the data term of a training step, per member of an ensemble"
    )


class NetworkStartSettings(BayesianSettings):
    """A posterior whose means can start at the network's ordinary initialisation."""

    keep_network_init: bool = Field(False, description="posterior means start at the network's ordinary initialisation")


class MonteCarloSettings(Settings):
    """An estimate from weight samples."""

    group: ClassVar[str] = "posterior"
    prior_samples: int = Field(1, ge=1, description="weight samples of a Monte Carlo prior-matching term")

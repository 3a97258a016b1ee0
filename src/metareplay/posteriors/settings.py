"""Settings of posteriors, their priors and the likelihood."""

from pydantic import Field

from metareplay.settings import Settings


class PosteriorSettings(Settings):
    """What theta means and how the prior pulls at it."""

    prior_variance: float = Field(1.0, gt=0, description="variance of the zero-mean Gaussian prior")
    prior_scale: float = Field(1.0, ge=0, description="tempering: factor of the prior-matching term (1: none, 0: no prior)")
    train_samples: int = Field(1, ge=1, description="weight samples K for the data term of a training step")
    prior_samples: int = Field(1, ge=1, description="weight samples of a Monte Carlo prior-matching term (radial posteriors)")
    local_reparametrisation: bool = Field(False, description="sample pre-activations instead of weights in training (MLPs only)")
    keep_network_init: bool = Field(False, description="posterior means start at the network's ordinary initialisation")
    likelihood_scale: float = Field(0.05, gt=0, description="standard deviation of the Gaussian likelihood (regression only)")

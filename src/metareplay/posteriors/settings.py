"""Settings of posteriors, their priors and the likelihood."""

from pydantic import Field, model_validator

from metareplay.nets.mlp import Activation
from metareplay.settings import Settings


class PosteriorSettings(Settings):
    """What theta means and how the prior pulls at it."""

    prior_variance: float = Field(1.0, gt=0, description="variance of the zero-mean Gaussian prior")
    prior_scale: float = Field(1.0, ge=0, description="tempering: factor of the prior-matching term (1: none, 0: no prior)")
    prior_power: float = Field(
        1.0, gt=0, description="tempering of the prior alone: the prior to this power; below 1 it is broader, so that less of it is kept"
    )
    train_samples: int = Field(1, ge=1, description="weight samples K for the data term of a training step, of each member of an ensemble")
    prior_samples: int = Field(1, ge=1, description="weight samples of a Monte Carlo prior-matching term (all but a Gaussian's)")
    members: int = Field(5, ge=2, description="ensembles: members of a task's posterior, each with an embedding (or parameters) of its own")
    local_reparametrisation: bool = Field(False, description="sample pre-activations instead of weights in training (MLPs only)")
    keep_network_init: bool = Field(False, description="posterior means start at the network's ordinary initialisation")
    likelihood_scale: float = Field(0.05, gt=0, description="standard deviation of the Gaussian likelihood (regression only)")
    generator_hidden: tuple[int, ...] = Field((10, 10), description="implicit posteriors: widths of the weight generator's hidden layers")
    generator_activation: Activation = Field("tanh", description="implicit posteriors: activation of the weight generator")
    generator_chunk_size: int | None = Field(
        None, ge=1, description="implicit posteriors: weights that the generator makes at once, chunk by chunk; null: all"
    )
    generator_chunk_embedding_size: int = Field(32, ge=1, description="implicit posteriors: length of the generator's chunk embeddings")
    generator_chunk_embedding_std: float = Field(
        1.0, gt=0, description="implicit posteriors: initial standard deviation of the generator's chunk embeddings"
    )
    latent_size: int = Field(32, ge=1, description="implicit posteriors: length of the generator's noise input")
    latent_std: float = Field(1.0, gt=0, description="implicit posteriors: standard deviation of the noise")
    support_noise: float | None = Field(
        0.02, gt=0, description="implicit posteriors: noise on each generated weight, in units of latent_std; null: none"
    )
    ssge_samples: int = Field(
        10, ge=1, description="SSGE: weight samples S that estimate the gradient of the log-density; the prior term is taken there"
    )
    ssge_width: float | None = Field(None, gt=0, description="SSGE: width of the RBF kernel; null: the samples' median distance")
    ssge_eigenfunctions: int | None = Field(
        None, ge=1, description="SSGE: so many eigenfunctions J, if there are; null: as ssge_ratio says"
    )
    ssge_ratio: float = Field(0.95, gt=0, le=1, description="SSGE: share of the eigenvalues' sum that the J largest exceed; 1: all")
    avb_hidden: tuple[int, ...] = Field((10, 10), description="AVB: widths of the discriminator's hidden layers")
    avb_activation: Activation = Field("sigmoid", description="AVB: activation of the discriminator")
    avb_batch_statistics: bool = Field(False, description="AVB: the discriminator also sees the mean and deviation of the samples' batch")
    avb_learning_rate: float | None = Field(None, gt=0, description="AVB: Adam's learning rate for the discriminator; null: training's own")
    avb_steps: int = Field(1, ge=1, description="AVB: steps of the discriminator before each training step")
    avb_batch_size: int = Field(
        32, ge=1, description="AVB: weight samples of the posterior, and as many others, in the discriminator's step"
    )
    avb_contrast_samples: int | None = Field(
        100, ge=2, description="AVB: weight samples that give the adaptive contrast its mean and variance; null: no adaptive contrast"
    )
    avb_chunk_size: int | None = Field(
        None, ge=1, description="AVB: weights that the discriminator reduces at once, chunk by chunk, before it judges; null: no reduction"
    )
    avb_chunk_hidden: tuple[int, ...] = Field((10,), description="AVB: widths of the hidden layers that reduce a chunk")
    avb_chunk_outputs: int = Field(4, ge=1, description="AVB: numbers that a chunk of weights is reduced to")
    flow_transforms: int = Field(4, ge=1, description="normalising flows: number of coupling layers")
    flow_hidden: tuple[int, ...] = Field((16,), description="normalising flows: hidden widths of the network in each coupling layer")
    flow_activation: Activation = Field("tanh", description="normalising flows: activation of these networks")

    @model_validator(mode="after")
    def _positive_widths(self) -> "PosteriorSettings":
        for key in ("generator_hidden", "avb_hidden", "avb_chunk_hidden", "flow_hidden"):
            if any(width < 1 for width in getattr(self, key)):
                raise ValueError(f"{key}: every width must be at least 1")
        return self

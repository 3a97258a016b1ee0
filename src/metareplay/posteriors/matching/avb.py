"""Adversarial Variational Bayes: a discriminator learns the log-ratio of posterior and prior.

[Mescheder2017; Henning2021, sm:sec:avb]
"""

from collections.abc import Mapping
from math import ceil
from typing import Literal, cast, final

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Generator, Tensor, nn
from torch.func import functional_call

from metareplay.errors import ConfigError
from metareplay.nets.activations import Activation
from metareplay.nets.mlp import MLP
from metareplay.nets.registry import build_seeded
from metareplay.optimisers import adam, clip_gradients, optimiser_tensors, restore_optimiser
from metareplay.posteriors.base import (
    HasLogProb,
    HasSamples,
    MatchingContext,
    MatchingPart,
    Posterior,
    Prior,
    PriorSource,
    register_matching,
)
from metareplay.posteriors.families.gaussian import MeanFieldGaussian
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.posteriors.settings import MonteCarloSettings
from metareplay.settings import Composition, Widths

SMALLEST_SCALE = 1e-4
"""Lower bound on the contrast's scale: a weight that hardly varies has no density ratio worth learning."""


class AVBSettings(MonteCarloSettings):
    """The discriminator and how it learns."""

    avb_hidden: Widths = Field((10, 10), description="widths of the discriminator's hidden layers")
    avb_activation: Activation = Field("sigmoid", description="activation of the discriminator")
    avb_batch_statistics: bool | Literal["mean"] = Field(
        False,
        description="the discriminator also sees the mean and standard deviation of the batch of samples; mean: the "
        "mean alone, and the term is estimated from prior_samples samples, as in the published runs",
    )
    avb_clipped: bool = Field(True, description="clip the discriminator's gradients like those of training")
    avb_kept: bool = Field(
        False,
        description="each task starts with the discriminator of the last one and a new optimiser, as in the published "
        "runs, which needs a network whose number of outputs stays the same; false: it is re-created for each task",
    )
    avb_learning_rate: float | None = Field(
        None, gt=0, description="Adam's learning rate for the discriminator; null: training.learning_rate"
    )
    avb_steps: int = Field(1, ge=1, description="steps of the discriminator before each training step")
    avb_batch_size: int = Field(
        32,
        ge=1,
        description="weight samples from the posterior, and as many from its opponent, in a discriminator step",
    )
    avb_contrast_samples: int | None = Field(
        100,
        ge=2,
        description="weight samples for the mean and variance of the adaptive contrast; null: no adaptive contrast",
    )
    avb_chunk_size: int | None = Field(
        None,
        ge=1,
        description="weights per chunk that the discriminator reduces before it classifies; null: no reduction",
    )
    avb_chunk_hidden: Widths = Field((10,), description="widths of the hidden layers that reduce a chunk")
    avb_chunk_outputs: int = Field(4, ge=1, description="features that a chunk of weights is reduced to")

    def without_effect(self, composition: Composition) -> Mapping[str, str]:
        """Chunk settings without chunks; powers of a prior known only by its samples."""
        unused: dict[str, str] = {}
        if self.avb_chunk_size is None:
            reason = "the discriminator takes all weights at once; set posterior.avb_chunk_size"
            unused |= dict.fromkeys(("posterior.avb_chunk_hidden", "posterior.avb_chunk_outputs"), reason)
        strategy = composition.parts()["strategy"]
        if isinstance(strategy, PriorSource) and strategy.recursive:
            unused["posterior.prior_power"] = (
                "AVB samples the prior, and a power of an implicit posterior cannot be sampled; choose pf-ssge"
            )
        return unused


@final
class Discriminator(nn.Module):
    """f_D: the logit that each weight sample of a batch comes from the posterior.

    With ``avb_chunk_size`` a first MLP reduces every chunk of the weights, and its concatenated outputs are the input.
    With ``avb_batch_statistics`` each sample is augmented with the mean and standard deviation of its batch, or with
    the mean alone.
    """

    def __init__(self, num_weights: int, settings: AVBSettings) -> None:
        super().__init__()
        self.chunk_size, self.batch_statistics = settings.avb_chunk_size, settings.avb_batch_statistics
        inputs = num_weights
        if self.chunk_size is not None:
            self.chunks = ceil(num_weights / self.chunk_size)
            self.padding = self.chunks * self.chunk_size - num_weights
            self.reduce = MLP(
                (self.chunk_size,), settings.avb_chunk_hidden, settings.avb_chunk_outputs, settings.avb_activation
            )
            inputs = self.chunks * settings.avb_chunk_outputs
        self.judge = MLP(
            (inputs * {False: 1, "mean": 2, True: 3}[self.batch_statistics],),
            settings.avb_hidden,
            1,
            settings.avb_activation,
        )

    def forward(self, weights: Tensor) -> Tensor:
        h = weights  # (n, W)
        if self.chunk_size is not None:
            chunks = F.pad(h, (0, self.padding)).view(-1, self.chunk_size)  # the last one padded with zeros; (n L, R)
            h = self.reduce(chunks).view(len(h), -1)  # (n L, r) -> (n, L r)
        if self.batch_statistics == "mean":
            h = torch.cat([h, h.mean(0).expand_as(h)], dim=1)  # (n, D) -> (n, 2 D)
        elif self.batch_statistics:
            spread = h.var(0, correction=0).clamp_min(SMALLEST_SCALE**2).sqrt()  # (D,)
            h = torch.cat([h, h.mean(0).expand_as(h), spread.expand_as(h)], dim=1)  # (n, D) -> (n, 3 D)
        return cast(Tensor, self.judge(h)).squeeze(1)  # (n, 1) -> (n,)


@final
class AVBMatching:
    """KL(q || p) as the mean of a discriminator that learns log q - log p, or with adaptive contrast log q - log r.

    A prior that can only be sampled has no adaptive contrast: r replaces the prior as the discriminator's opponent, and
    the prior's density is needed to get back to p.
    """

    def __init__(self, settings: AVBSettings, context: MatchingContext) -> None:
        self.settings, self.num_weights = settings, context.num_weights
        clip = (context.clip_value, context.clip_norm) if settings.avb_clipped else (None, None)
        self.clip_value, self.clip_norm = clip
        discriminator = build_seeded(lambda _: Discriminator(context.num_weights, settings), 1, context.generator)
        self.discriminator = discriminator.to(context.device)
        self.parameters = list(self.discriminator.parameters())
        self.optimiser = adam(self.parameters, settings.avb_learning_rate or context.learning_rate)

    def learn(self, q: Posterior, p: Prior, *, generator: Generator) -> None:
        """A few steps of the discriminator; no gradient reaches q."""
        size = self.settings.avb_batch_size
        with torch.no_grad():
            contrast = self._contrast(q, p, generator)
            samples = q.rsample(self.settings.avb_steps * size, generator=generator)  # all steps at once; (k n, W)
            opponents = self._opponents(len(samples), p, contrast, generator)  # (k n, W)
        for true, false in zip(samples.split(size), opponents.split(size), strict=True):  # (n, W) each
            gain = F.logsigmoid(self.discriminator(true)).mean() + F.logsigmoid(-self.discriminator(false)).mean()
            self.optimiser.zero_grad()
            (-gain).backward()  # eq. avb:discriminator:loss, maximised; log(1 - sigmoid(f)) = log sigmoid(-f)
            clip_gradients(self.parameters, value=self.clip_value, norm=self.clip_norm)
            self.optimiser.step()

    def term(self, q: Posterior, p: Prior, *, generator: Generator) -> Tensor:
        """Gradients reach q through its samples only: that of f_D's parameters vanishes at the optimum, sm:sec:avb."""
        with torch.no_grad():
            contrast = self._contrast(q, p, generator)
        together = self.settings.avb_batch_size if self.settings.avb_batch_statistics is True else 1  # one batch of f_D
        weights = q.rsample(max(self.settings.prior_samples, together), generator=generator)  # (n, W)
        ratio = self._ratio(weights)  # f_D, or f~_D with adaptive contrast; (n,)
        if contrast is None:
            # E_q f_D(w), second equation of sm:sec:avb; with batch statistics f_D refers to the whole batch; (n,) -> ()
            return ratio.mean() / together
        terms = contrast.log_prob(weights) - cast(HasLogProb, p).log_prob(weights) + ratio  # log r - log p + f~_D; (n,)
        return terms.mean()

    def _ratio(self, weights: Tensor) -> Tensor:
        fixed = {name: parameter.detach() for name, parameter in self.discriminator.named_parameters()}
        return cast(Tensor, functional_call(self.discriminator, fixed, (weights,)))  # (n, W) -> (n,)

    def _contrast(self, q: Posterior, p: Prior, generator: Generator) -> MeanFieldGaussian | None:
        """r_alpha: the Gaussian with the empirical mean and variance of q; None without adaptive contrast."""
        count = self.settings.avb_contrast_samples
        if count is None or not isinstance(p, HasLogProb):
            return None
        weights = q.rsample(count, generator=generator)  # (n, W)
        return MeanFieldGaussian(weights.mean(0), weights.std(0).clamp_min(SMALLEST_SCALE))

    def _opponents(self, n: int, p: Prior, contrast: MeanFieldGaussian | None, generator: Generator) -> Tensor:
        source = contrast or (p.over(self.num_weights) if isinstance(p, GaussianPrior) else p)
        if not isinstance(source, HasSamples):
            raise ConfigError(
                f"AVB without adaptive contrast needs samples of the prior, and {type(p).__name__} has none"
            )
        return source.rsample(n, generator=generator).to(self.parameters[0].device)  # (n, W)

    def handed_on(self) -> dict[str, Tensor]:
        """The discriminator, for the next task; its optimiser is not."""
        return dict(self.discriminator.state_dict()) if self.settings.avb_kept else {}

    def take_over(self, tensors: Mapping[str, Tensor]) -> None:
        """Start with the last task's discriminator."""
        now = {name: value.shape for name, value in self.discriminator.state_dict().items()}
        if now != {name: value.shape for name, value in tensors.items()}:
            raise ConfigError(
                f"posterior.avb_kept keeps the last task's discriminator, which does not fit the {self.num_weights:,} "
                "weights that the network has now; all tasks need the same number of outputs, or on a benchmark "
                "outputs_from_start=true; else set posterior.avb_kept=false from the first task on"
            )
        self.discriminator.load_state_dict(dict(tensors))

    def tensors(self) -> dict[str, Tensor]:
        stored = {f"discriminator.{name}": value.detach() for name, value in self.discriminator.state_dict().items()}
        return stored | {f"optimiser.{name}": value for name, value in optimiser_tensors(self.optimiser).items()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        parts: dict[str, dict[str, Tensor]] = {"discriminator": {}, "optimiser": {}}
        for name, value in tensors.items():
            part, _, rest = name.partition(".")
            parts[part][rest] = value
        self.discriminator.load_state_dict(parts["discriminator"])
        restore_optimiser(self.optimiser, parts["optimiser"])


register_matching(
    MatchingPart(
        name="avb",
        phrase="implicit posteriors trained by AVB",
        settings=(AVBSettings,),
        build=lambda parts, context: AVBMatching(parts.get(AVBSettings), context),
    )
)

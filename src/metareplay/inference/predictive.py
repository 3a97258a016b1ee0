"""The posterior predictive: outputs for weight samples of a task's posterior [Henning2021, SM eq. pred:dist:mc]."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from math import ceil, log

import torch
from torch import Generator, Tensor, nn

from metareplay.errors import ConfigError
from metareplay.inference.drawn_weights import Drawn, DrawnWeights
from metareplay.model import ContinualModel
from metareplay.nets.lending import borrowed
from metareplay.nets.linearised import linearised_mlp_outputs
from metareplay.nets.mlp import MLP
from metareplay.nets.moments import mlp_output_moments
from metareplay.nets.noise import drawing_in_evaluation, draws_in_evaluation
from metareplay.nets.weights import Buffers, WeightSpec, linearised_outputs, run_flat
from metareplay.posteriors.base import Posterior
from metareplay.posteriors.families.gaussian import MeanFieldGaussian
from metareplay.posteriors.families.laplace import LinearisedGaussian
from metareplay.posteriors.families.mixture import members_of

AT_ONCE = 5
"""Weight samples that are drawn and run together: their activations fit the cache, and memory does not grow with K."""


class WeightSamples:
    """Outputs of one task's networks, a few weight samples at a time; the samples do not depend on the inputs.

    Point estimates are used once each. Otherwise each member of an ensemble gives the same number of samples, rounded
    up.
    """

    convert: Callable[[Tensor], Tensor] | None = None
    """Outputs -> log p(y | w, x), if not as usual."""

    def __init__(
        self,
        model: ContinualModel,
        task: int,
        samples: int,
        *,
        generator: Generator,
        columns: slice,
        batch_size: int = 500,
        autocast: bool = False,
        convert: Callable[[Tensor], Tensor] | None = None,
        drawn: DrawnWeights | None = None,
    ) -> None:
        self.model, self.generator, self.columns = model, generator, columns
        self.convert = convert
        self.batch_size, self.autocast = batch_size, autocast
        self.posterior, self.buffers = model.posterior(task), model.buffers(task)
        members = members_of(self.posterior)[1]
        total = model.family.weight_sets or ceil(samples / members) * members
        step = ceil(AT_ONCE / members) * members
        self.steps = [min(step, total - start) for start in range(0, total, step)]
        """The number of weight samples in each draw."""
        self.begun = 0
        self.drawn = self._kept(task, drawn)

    def _kept(self, task: int, drawn: DrawnWeights | None) -> Drawn | None:
        """Where samples are that were drawn before; None if the network draws random numbers between them."""
        model, total = self.model, sum(self.steps)
        if drawn is None or model.family.weight_sets is not None or draws_in_evaluation(model.network) is not False:
            return None
        key, theta = (task, model.lineage.number_of(task), total), model.task_map.theta(task).detach()
        return drawn.of(key, theta, total * model.spec.numel * theta.element_size(), self.generator)

    @torch.no_grad()
    def weights(self, samples: int) -> Tensor:
        """The next weight samples (S, W); they must not be modified."""
        number, self.begun = self.begun, self.begun + 1
        if self.drawn is None:
            return self.posterior.rsample(samples, generator=self.generator)
        return self.drawn.part(number, lambda generator: self.posterior.rsample(samples, generator=generator))

    @torch.no_grad()
    def draw(self, samples: int, x: Tensor) -> Tensor:
        """Outputs (S, N, C) for the next weight samples, as many as the next of ``steps``."""
        weights = self.weights(samples)
        network, spec, device = self.model.network, self.model.spec, self.model.device
        precision = torch.autocast(device.type, torch.bfloat16) if self.autocast else nullcontext()
        with borrowed(network) as lent, self._noise(x), precision:
            batches = x.split(self.batch_size)
            runs = (run_flat(lent, spec, weights, batch.to(device), self.buffers) for batch in batches)
            parts = [outputs[..., self.columns].to(weights.dtype).cpu() for outputs in runs]
        return torch.cat(parts, dim=1)  # (S, N, C)

    def draw_log_likelihoods(self, samples: int, x: Tensor) -> Tensor:
        """log p(y | w, x) (S, N, C) for the next weight samples."""
        return (self.convert or log_likelihoods)(self.draw(samples, x))

    def _noise(self, x: Tensor) -> AbstractContextManager[None]:
        """A few networks draw random numbers when they predict; without inputs there is nothing to draw."""
        return drawing_in_evaluation(self.model.network, self.generator) if len(x) else nullcontext()


@torch.no_grad()
def predictive_outputs(
    model: ContinualModel,
    x: Tensor,
    task: int,
    samples: int,
    *,
    generator: Generator,
    batch_size: int = 500,
    every_output: bool = False,
    moments: bool = False,
    autocast: bool = False,
    drawn: DrawnWeights | None = None,
) -> Tensor:
    """Outputs of one task's networks (S, N, C); all inputs share the same weight samples.

    A linearised network, and with ``moments`` an MLP with a Gaussian posterior, needs no weight samples: its outputs
    are themselves Gaussian, the latter's approximately, and are sampled instead. With ``autocast`` networks compute in
    bfloat16. Samples that were ``drawn`` before are used again; the generator must be that of the task.
    """
    columns = slice(None) if every_output else model.heads[task]
    posterior = model.posterior(task)
    if moments or isinstance(posterior, LinearisedGaussian):
        parts = (part.to(model.device) for part in x.split(batch_size))
        with borrowed(model.network) as network, drawing_in_evaluation(model.network, generator):
            moments_of_parts = [
                _gaussian_outputs(network, model.spec, posterior, part, columns, model.buffers(task)[0])
                for part in parts
            ]
        means, covariances = zip(*moments_of_parts, strict=True)
        return output_samples(torch.cat(means).cpu(), torch.cat(covariances).cpu(), samples, generator=generator)
    sampled = WeightSamples(
        model,
        task,
        samples,
        generator=generator,
        columns=columns,
        batch_size=batch_size,
        autocast=autocast,
        drawn=drawn,
    )
    return torch.cat([sampled.draw(step, x) for step in sampled.steps])  # (S, N, C)


def _gaussian_outputs(
    network: nn.Module, spec: WeightSpec, posterior: Posterior, x: Tensor, columns: slice, buffers: Buffers
) -> tuple[Tensor, Tensor]:
    """Mean (B, C) and covariance (B, C, C) of the outputs."""
    if isinstance(network, MLP) and isinstance(posterior, LinearisedGaussian | MeanFieldGaussian):
        by_layers = linearised_mlp_outputs if isinstance(posterior, LinearisedGaussian) else mlp_output_moments
        return by_layers(network, spec, posterior.mean, posterior.scale, x, columns)
    if isinstance(posterior, LinearisedGaussian):
        return linearised_outputs(network, spec, posterior.mean, posterior.scale, x, columns, buffers)
    raise ConfigError(
        "inference.predictive=moments needs an MLP whose weights are independent Gaussians, as with pr-bbb; "
        "set it to samples"
    )


def output_samples(mean: Tensor, covariance: Tensor, samples: int, *, generator: Generator) -> Tensor:
    """Antithetic samples (S, N, C) of Gaussian outputs with means (N, C) and covariances (N, C, C).

    The mean prediction of a pair has the same class as the mean (always, with two classes), however wide the Gaussian
    is: a few independent samples of a wide one would be a random guess.
    """
    noise = torch.randn((samples + 1) // 2, mean.shape[1], generator=generator, dtype=mean.dtype)
    pairs = torch.stack([noise, -noise], dim=1).flatten(0, 1)[:samples]  # (S / 2, C) -> (S, C)
    values, vectors = torch.linalg.eigh(covariance)  # works even if it is singular
    roots = vectors * values.clamp_min(0).sqrt().unsqueeze(-2)  # (N, C, C)
    return mean + torch.einsum("ncd,sd->snc", roots, pairs)  # (S, N, C)


def log_likelihoods(outputs: Tensor) -> Tensor:
    """log p(y | w, x) of each weight sample, in float64 so that confident predictions stay distinct: (S, N, C)."""
    return outputs.double().log_softmax(-1)


def log_predictive(log_probs: Tensor) -> Tensor:
    """log p(y | D, x): the mean over weight samples, in log space."""
    return log_probs.logsumexp(0) - log(log_probs.shape[0])  # SM eq. pred:dist:mc; (S, N, C) -> (N, C)

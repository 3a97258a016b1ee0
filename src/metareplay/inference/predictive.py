"""The posterior predictive: outputs under weight samples of a task's posterior [Henning2021, SM eq. pred:dist:mc]."""

from math import ceil, log

import torch
from torch import Generator, Tensor

from metareplay.model import ContinualModel
from metareplay.nets.linearised import linearised_mlp_outputs
from metareplay.nets.mlp import MLP
from metareplay.nets.weights import Buffers, drawing_from, linearised_outputs, run_flat
from metareplay.posteriors.laplace import LinearisedGaussian
from metareplay.posteriors.mixture import members_of


@torch.no_grad()
def predictive_outputs(
    model: ContinualModel, x: Tensor, task: int, samples: int, *, generator: Generator, batch_size: int = 500, every_output: bool = False
) -> Tensor:
    """Outputs of one task's networks (S, N, C); the same weight samples serve all inputs.

    Point estimates are used once each, and a linearised network needs no weight samples: its outputs are Gaussian
    themselves. Of an ensemble's other members each gives the same number of samples, rounded up.
    """
    posterior, buffers = model.posterior(task), model.buffers(task)
    columns = slice(None) if every_output else model.heads[task]
    if isinstance(posterior, LinearisedGaussian):
        batches = (part.to(model.device) for part in x.split(batch_size))
        means, covariances = zip(*(_linearised(model, posterior, part, columns, buffers[0]) for part in batches), strict=True)
        return output_samples(torch.cat(means).cpu(), torch.cat(covariances).cpu(), samples, generator=generator)
    members = members_of(posterior)[1]
    samples = model.family.weight_sets or ceil(samples / members) * members
    weights = posterior.rsample(samples, generator=generator)  # (S, W)
    with drawing_from(generator):
        each = (run_flat(model.network, model.spec, weights, part.to(model.device), buffers) for part in x.split(batch_size))
        parts = [outputs[..., columns].cpu() for outputs in each]
    return torch.cat(parts, dim=1)  # (S, N, C)


def _linearised(model: ContinualModel, posterior: LinearisedGaussian, x: Tensor, columns: slice, buffers: Buffers) -> tuple[Tensor, Tensor]:
    """Mean (B, C) and covariance (B, C, C) of the outputs."""
    if isinstance(model.network, MLP):
        return linearised_mlp_outputs(model.network, model.spec, posterior.mean, posterior.scale, x, columns)
    return linearised_outputs(model.network, model.spec, posterior.mean, posterior.scale, x, columns, buffers)


def output_samples(mean: Tensor, covariance: Tensor, samples: int, *, generator: Generator) -> Tensor:
    """Samples (S, N, C) of Gaussian outputs with means (N, C) and covariances (N, C, C), in pairs at either side of the mean.

    The mean prediction of a pair names the mean's class (of two, always), however wide the Gaussian is: otherwise a few samples of a
    wide one would guess.
    """
    noise = torch.randn((samples + 1) // 2, mean.shape[1], generator=generator, dtype=mean.dtype)
    pairs = torch.stack([noise, -noise], dim=1).flatten(0, 1)[:samples]  # (S / 2, C) -> (S, C)
    values, vectors = torch.linalg.eigh(covariance)  # also where it is singular
    roots = vectors * values.clamp_min(0).sqrt().unsqueeze(-2)  # (N, C, C)
    return mean + torch.einsum("ncd,sd->snc", roots, pairs)  # (S, N, C)


def log_likelihoods(outputs: Tensor) -> Tensor:
    """log p(y | w, x) of each weight sample, in float64 so that confident predictions stay apart: (S, N, C)."""
    return outputs.double().log_softmax(-1)


def log_predictive(log_probs: Tensor) -> Tensor:
    """log p(y | D, x): the mean over weight samples, in log space."""
    return log_probs.logsumexp(0) - log(log_probs.shape[0])  # SM eq. pred:dist:mc; (S, N, C) -> (N, C)

"""The posterior predictive: outputs under weight samples of a task's posterior [Henning2021, SM eq. pred:dist:mc]."""

from math import ceil, log

import torch
from torch import Generator, Tensor

from metareplay.model import ContinualModel
from metareplay.nets.weights import run_flat, run_linearised
from metareplay.posteriors.laplace import LinearisedGaussian
from metareplay.posteriors.mixture import members_of


@torch.no_grad()
def predictive_outputs(
    model: ContinualModel, x: Tensor, task: int, samples: int, *, generator: Generator, batch_size: int = 500, every_output: bool = False
) -> Tensor:
    """Outputs of one task's networks (S, N, C); the same weight samples serve all inputs.

    Point estimates are used once each. Of an ensemble's other members each gives the same number of samples, rounded up.
    """
    posterior = model.posterior(task)
    members = members_of(posterior)[1]
    samples = model.family.weight_sets or ceil(samples / members) * members
    weights = posterior.rsample(samples, generator=generator)  # (S, W)
    columns = slice(None) if every_output else model.heads[task]

    def run(part: Tensor) -> Tensor:
        if isinstance(posterior, LinearisedGaussian):
            return run_linearised(model.network, model.spec, posterior.mean, weights, part)
        return run_flat(model.network, model.spec, weights, part)

    return torch.cat([run(part)[..., columns] for part in x.split(batch_size)], dim=1)  # (S, N, C)


def log_likelihoods(outputs: Tensor) -> Tensor:
    """log p(y | w, x) of each weight sample, in float64 so that confident predictions stay apart: (S, N, C)."""
    return outputs.double().log_softmax(-1)


def log_predictive(log_probs: Tensor) -> Tensor:
    """log p(y | D, x): the mean over weight samples, in log space."""
    return log_probs.logsumexp(0) - log(log_probs.shape[0])  # SM eq. pred:dist:mc; (S, N, C) -> (N, C)

"""How strongly each parameter of a task's posterior must be preserved: the diagonal of a Fisher information matrix.

For small changes KL(q* || q) is 1/2 (theta - theta*)' R (theta - theta*) with R the Fisher information of q* as a
distribution over weights [Henning2021, sec:dis:hnet:reg, sm:eq:kl:taylor]. R is computed from the density if there is
one, else from the task's data.
"""

from collections.abc import Callable
from typing import ClassVar, cast

import torch
from pydantic import Field
from torch import Generator, Tensor
from torch.func import functional_call, grad, vjp, vmap

from metareplay.benchmarks.base import TaskData
from metareplay.model import ContinualModel
from metareplay.nets.weights import WeightSpec, without_slowness_warning
from metareplay.posteriors.base import HasFisher, HasLogProb, PosteriorFamily
from metareplay.posteriors.families.mixture import member_family
from metareplay.settings import Settings

GRADIENT_NUMBERS = 20_000_000
"""Upper bound on the number of gradient elements per batch."""


class FisherSettings(Settings):
    """How the Fisher information of a task's posterior is estimated where it has no closed form."""

    group: ClassVar[str] = "strategy"
    fisher_samples: int | None = Field(
        None, ge=1, description="examples of a task used for its Fisher information; null: all"
    )
    fisher_weight_samples: int = Field(
        10, ge=1, description="weight samples for the Fisher information of a task's posterior (penalty fisher)"
    )


def is_known(family: PosteriorFamily) -> bool:
    """Whether the Fisher information has a closed form, so that it need not be estimated."""
    return isinstance(member_family(family)[0], HasFisher)


def known_information(family: PosteriorFamily, theta: Tensor, spec: WeightSpec) -> Tensor:
    """The diagonal of R in closed form, for each theta: (..., P) -> (..., P)."""
    base, members = member_family(family)
    information = cast(HasFisher, base).fisher(theta.unflatten(-1, (members, -1)), spec)  # (..., M P) -> (..., M, P)
    return information.flatten(-2) / members  # an ensemble's change is the mean over its members; (..., M P)


def posterior_information(
    model: ContinualModel,
    task: int,
    data: TaskData,
    settings: FisherSettings,
    prior_variance: float,
    *,
    generator: Generator,
) -> Tensor:
    """The diagonal of R^(t) for a task that was just learned: (P,)."""
    family, members = member_family(model.family)
    samples, examples = settings.fisher_weight_samples, settings.fisher_samples
    information = []
    thetas = model.task_map.theta(task).detach().unflatten(-1, (members, -1))  # (M P,) -> (M, P)
    for member, theta in enumerate(thetas):
        if isinstance(family.at(theta, model.spec), HasLogProb):
            diagonal = squared_scores(family, theta, model.spec, samples, generator=generator)
        else:
            sets = samples if family.weight_sets is None else family.weight_sets  # a point has one set of weights
            equal = theta.expand(sets, -1)  # (P,) -> (S, P)
            diagonal = from_data(
                model, task, data, family, equal, examples, prior_variance, generator=generator, member=member
            )
        information.append(diagonal)
    return torch.cat(information) / members  # an ensemble's change is the mean over its members; (M P,)


def from_data(
    model: ContinualModel,
    task: int,
    data: TaskData,
    family: PosteriorFamily,
    thetas: Tensor,
    examples: int | None,
    prior_variance: float,
    *,
    generator: Generator,
    member: int = 0,
) -> Tensor:
    """The heuristic for posteriors without a usable density, from one weight sample per equal theta: (S, P) -> (P,)."""

    def drawn(parameters: Tensor) -> Tensor:
        posterior = family.at(parameters, model.spec)
        return posterior.rsample(1, generator=generator)[0]  # w(theta, z), one z each; (S, P) -> (S, W)

    weights, pull = vjp(drawn, thetas)[:2]
    # log q ~ log p(D | W) + log p(W): the heuristic that ends sec:dis:hnet:reg, with squared gradients for the Hessian
    fisher = summed_squared_gradients(model, task, data, weights, examples, lambda gradient: pull(gradient)[0], member)
    signs = torch.randint(2, weights.shape, generator=generator).to(weights) * 2 - 1
    squares = pull(signs)[0].square().sum(0)  # E (J's)_j^2 = sum_i J_ij^2 for random signs s; (S, P) -> (P,)
    curvature = squares / prior_variance  # diagonal of J' (1 / sigma_prior^2) J, J = dw / dtheta; (P,)
    return (fisher + curvature) / len(thetas)


def squared_scores(
    family: PosteriorFamily, theta: Tensor, spec: WeightSpec, samples: int, *, generator: Generator
) -> Tensor:
    """Monte Carlo mean of (d log q(w) / d theta)^2 over weight samples of q: (P,)."""

    def log_density(parameters: Tensor, weights: Tensor) -> Tensor:
        return cast(HasLogProb, family.at(parameters, spec)).log_prob(weights.unsqueeze(0)).squeeze(0)  # (W,) -> ()

    drawn = family.at(theta, spec).rsample(samples, generator=generator)  # (n, W)
    scores, total = vmap(grad(log_density), in_dims=(None, 0)), torch.zeros_like(theta)
    for part in drawn.split(max(1, GRADIENT_NUMBERS // len(theta))):
        total += scores(theta, part).square().sum(0)  # diagonal of sm:eq:hnet:reg:distribution:space; (n, P) -> (P,)
    return total / samples


def summed_squared_gradients(
    model: ContinualModel,
    task: int,
    data: TaskData,
    weights: Tensor,
    examples: int | None,
    pull: Callable[[Tensor], Tensor] = lambda gradient: gradient,
    member: int = 0,
) -> Tensor:
    """N times the diagonal of the empirical Fisher information, summed over weight samples (S, W): (P,).

    It is estimated from this many ``examples`` (None: all). ``pull`` maps a gradient with respect to the weights (S, W)
    to one with respect to the parameters that generated them (S, P). The weights are those of one ``member`` of an
    ensemble.
    """
    columns, buffers = model.training_columns(task), model.buffers(task)[member]  # buffers are used, never updated

    def loss(flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        tensors = {**model.spec.unflatten(flat), **buffers}
        outputs: Tensor = functional_call(model.network, tensors, (x.unsqueeze(0),))  # (1, C)
        return model.likelihood.nll(outputs.unsqueeze(0)[..., columns], y.unsqueeze(0))

    def gradient(x: Tensor, y: Tensor) -> Tensor:
        return pull(vmap(grad(loss), in_dims=(0, None, None))(weights, x, y))  # (S, W) -> (S, P)

    def squares(inputs: Tensor, targets: Tensor) -> Tensor:
        try:
            with without_slowness_warning():
                gradients = vmap(gradient)(inputs, targets)  # (B, S, P)
        except RuntimeError:  # layers that cannot be batched, e.g. recurrent ones
            pairs = list(zip(inputs, targets, strict=True))
            gradients = torch.stack([pull(torch.stack([grad(loss)(flat, x, y) for flat in weights])) for x, y in pairs])
        return gradients.square().sum((0, 1))  # sum_n (d log p(y_n | w, x_n) / dw)^2; (B, S, P) -> (P,)

    count = min(examples or len(data.x), len(data.x))
    chosen = torch.linspace(0, len(data.x) - 1, count).long()  # evenly spaced over the data
    x, y = data.x[chosen].to(weights.device), data.y[chosen].to(weights.device)
    pulled = pull(weights)  # only its size matters; (S, P)
    size, total = max(1, GRADIENT_NUMBERS // max(weights.numel(), pulled.numel())), torch.zeros_like(pulled[0])
    for inputs, targets in zip(x.split(size), y.split(size), strict=True):
        total += squares(inputs, targets)
    return total * (len(data.x) / len(x))

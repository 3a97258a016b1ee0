"""Online elastic weight consolidation [Henning2021, SM sec. Elastic Weight Consolidation; Schwarz2018, Huszar2018].

One point estimate is trained on; weights that mattered for earlier tasks are held by a quadratic penalty whose strengths
are the diagonal of the empirical Fisher information, summed over tasks, plus the precision of the prior.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

import torch
from torch import Generator, Tensor, nn
from torch.func import functional_call, grad, vmap

from metareplay.model import ContinualModel
from metareplay.posteriors.gaussian import GaussianPrior
from metareplay.strategies.base import QuietStrategy, TrainingData
from metareplay.strategies.settings import StrategySettings

GRADIENT_NUMBERS = 20_000_000
"""How many numbers the per-example gradients of one batch may take."""


@final
class OnlineEWC(QuietStrategy):
    """Keeps each weight near its last value, as firmly as all tasks so far need it."""

    def __init__(self, settings: StrategySettings, prior: GaussianPrior) -> None:
        super().__init__(prior)
        self.settings, self.precision = settings, 1 / prior.variance
        self.centre: Tensor | None = None
        self.importance: Tensor | None = None

    def before_task(self, model: ContinualModel, task: int) -> None:
        weights, precision = model.task_map.theta(task).detach().chunk(2)  # (2W,) -> (W,) twice
        self.centre = torch.where(model.fresh, 0.0, weights).clone()  # new weights are drawn to the prior's mean
        base = self.precision
        self.importance = self.settings.strength * (precision - base) + base  # lambda sum_t N F_emp + 1 / sigma_prior^2

    def penalty(self, model: ContinualModel, task: int, *, generator: Generator) -> Tensor | None:
        if self.centre is None or self.importance is None:
            return None
        weights = model.task_map.theta(task).chunk(2)[0]
        return 0.5 * (self.importance * (weights - self.centre).square()).sum()  # -log of the Gaussian prior, SM sec. Online EWC

    def after_task(self, model: ContinualModel, task: int, data: TrainingData) -> None:
        fisher = summed_squared_gradients(model, task, data, self.settings.fisher_samples)
        precision = model.task_map.theta(task).detach().chunk(2)[1]  # a view of theta: changed in place below
        base = self.precision
        precision.copy_(self.settings.decay * (precision - base) + fisher + base)  # gamma sum N F + N F + 1 / sigma_prior^2

    def tensors(self) -> dict[str, Tensor]:
        return {} if self.centre is None or self.importance is None else {"centre": self.centre, "importance": self.importance}

    def restore(self, model: ContinualModel, task: int, tensors: dict[str, Tensor]) -> None:
        self.centre, self.importance = tensors.get("centre"), tensors.get("importance")


def summed_squared_gradients(model: ContinualModel, task: int, data: TrainingData, samples: int | None) -> Tensor:
    """N times the diagonal of the empirical Fisher information at theta's weights, from ``samples`` examples (all: None); (W,)."""
    weights = model.task_map.theta(task).detach().chunk(2)[0]
    columns = model.training_columns(task)

    def loss(flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        outputs: Tensor = functional_call(model.network, model.spec.unflatten(flat), (x.unsqueeze(0),))  # (1, C)
        return model.likelihood.nll(outputs.unsqueeze(0)[..., columns], y.unsqueeze(0))

    per_example = vmap(grad(loss), in_dims=(None, 0, 0))
    chosen = torch.linspace(0, len(data.x) - 1, min(samples or len(data.x), len(data.x))).long()  # spread evenly over the data
    x, y = data.x[chosen], data.y[chosen]
    size = max(1, GRADIENT_NUMBERS // len(weights))
    total = torch.zeros_like(weights)
    with evaluating(model.network):
        for inputs, targets in zip(x.split(size), y.split(size), strict=True):
            total += per_example(weights, inputs, targets).square().sum(0)  # sum_n (d log p(y_n | w, x_n) / dw)^2; (B, W) -> (W,)
    return total * (len(data.x) / len(x))


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """The network as it predicts: statistics of batch normalisation are used, not updated, and nothing is dropped."""
    training = network.training
    network.eval()
    try:
        yield
    finally:
        network.train(training)

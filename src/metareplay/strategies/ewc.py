"""Online elastic weight consolidation [Henning2021, SM sec. Elastic Weight Consolidation; Schwarz2018, Huszar2018].

One point estimate is trained on; weights that mattered for earlier tasks are held by a quadratic penalty whose strengths
are the diagonal of the empirical Fisher information, summed over tasks, plus the precision of the prior.
"""

from typing import cast, final

import torch
from torch import Generator, Tensor

from metareplay.benchmarks.base import TaskData
from metareplay.kernels.quadratic import quadratic_change
from metareplay.model import ContinualModel
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.strategies.base import QuietStrategy
from metareplay.strategies.fisher import summed_squared_gradients
from metareplay.strategies.settings import StrategySettings
from metareplay.task_maps.direct import SharedParameters


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
        weights = model.task_map.trained_theta(task)  # (W,)
        return quadratic_change(self.importance, self.centre, weights)  # -log of the Gaussian prior, SM sec. Online EWC; (W,) -> ()

    def after_task(self, model: ContinualModel, task: int, data: TaskData) -> None:
        weights, precision = model.task_map.trained_theta(task).detach(), cast(Tensor, cast(SharedParameters, model.task_map).constant)
        fisher = summed_squared_gradients(model, task, data, weights.unsqueeze(0), self.settings.fisher_samples)
        base = self.precision
        precision.copy_(self.settings.decay * (precision - base) + fisher + base)  # gamma sum N F + N F + 1 / sigma_prior^2

    def tensors(self) -> dict[str, Tensor]:
        return {} if self.centre is None or self.importance is None else {"centre": self.centre, "importance": self.importance}

    def restore(self, model: ContinualModel, task: int, tensors: dict[str, Tensor]) -> None:
        held = {name: tensor.to(model.device) for name, tensor in tensors.items()}
        self.centre, self.importance = held.get("centre"), held.get("importance")

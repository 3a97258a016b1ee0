"""Online elastic weight consolidation [Henning2021, SM sec. Elastic Weight Consolidation; Schwarz2018, Huszar2018].

A single point estimate is trained further; weights that mattered for earlier tasks are held by a quadratic penalty
whose strengths are the diagonal of the empirical Fisher information, summed over tasks, plus the prior's precision.

The published runs scale the sum of n squared gradients and the prior's precision by N/n, and multiply all of it by
lambda (``scaled_prior``). With N = 12,665 and n = 200 the prior's share is then 63, and the penalty nearly isotropic.
"""

from collections.abc import Mapping
from typing import ClassVar, cast, final

import torch
from pydantic import Field
from torch import Generator, Tensor

from metareplay.benchmarks.base import TaskData
from metareplay.kernels.quadratic import quadratic_change
from metareplay.model import ContinualModel
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.settings import Settings
from metareplay.strategies.base import (
    QuietStrategy,
    StrategyPart,
    current_state,
    of_current,
    register_strategy,
)
from metareplay.strategies.fisher import summed_squared_gradients
from metareplay.task_maps.direct import SharedParameters


class EWCSettings(Settings):
    """How strongly old tasks are protected."""

    group: ClassVar[str] = "strategy"
    strength: float = Field(1.0, ge=0, description="weight of the penalty: lambda")
    decay: float = Field(
        1.0, ge=0, le=1, description="gamma: factor of the old tasks' Fisher information after each task"
    )
    fisher_samples: int | None = Field(
        None, ge=1, description="examples of a task used for its Fisher information; null: all"
    )
    scaled_prior: bool = Field(
        False,
        description="the prior's precision is scaled to the size of the task and multiplied by the strength like the "
        "Fisher information, as in the published runs; false: it counts once",
    )


@final
class OnlineEWC(QuietStrategy):
    """Keeps each weight near its last value, in proportion to its importance for all tasks so far."""

    keeps_revised = True

    def __init__(self, settings: EWCSettings, prior: GaussianPrior) -> None:
        super().__init__(prior)
        self.settings, self.precision = settings, 1 / prior.variance
        self.centre: Tensor | None = None
        self.importance: Tensor | None = None
        self.fresh: Tensor | None = None
        """True for weights without an earlier task (W,); needed only where the prior is scaled."""

    def before_task(self, model: ContinualModel, task: int) -> None:
        self._hold(model, task, model.fresh)

    def before_revision(self, model: ContinualModel, task: int, *, resumed: bool) -> None:
        if not resumed:
            self._hold(model, task, torch.zeros_like(model.fresh))

    def _hold(self, model: ContinualModel, task: int, fresh: Tensor) -> None:
        weights, precision = model.task_map.theta(task).detach().chunk(2)  # (2W,) -> (W,) twice
        self.centre = torch.where(fresh, 0.0, weights).clone()  # new weights are pulled towards the prior's mean
        base, strength = self.precision, self.settings.strength
        if self.settings.scaled_prior:
            self.fresh = fresh.clone()
            self.importance = torch.where(fresh, base, strength * precision)  # new weights have the prior alone
        else:
            self.importance = strength * (precision - base) + base  # lambda sum_t N F_emp + 1 / sigma_prior^2

    def penalty(self, model: ContinualModel, task: int, *, generator: Generator) -> Tensor | None:
        if self.centre is None or self.importance is None:
            return None
        weights = model.task_map.trained_theta(task)  # (W,)
        # negative log of the Gaussian prior, SM sec. Online EWC; (W,) -> ()
        return quadratic_change(self.importance, self.centre, weights)

    def after_task(self, model: ContinualModel, task: int, data: TaskData) -> None:
        weights = model.task_map.trained_theta(task).detach()
        precision = cast(Tensor, cast(SharedParameters, model.task_map).constant)
        fisher = summed_squared_gradients(model, task, data, weights.unsqueeze(0), self.settings.fisher_samples)
        base, decay = self.precision, self.settings.decay
        if self.settings.scaled_prior:
            size = len(data.x)
            prior = base * (size / min(self.settings.fisher_samples or size, size))  # N/n 1 / sigma_prior^2
            fresh = torch.zeros_like(precision, dtype=torch.bool) if self.fresh is None else self.fresh
            precision.copy_(torch.where(fresh, prior, decay * precision) + fisher)
        else:
            precision.copy_(decay * (precision - base) + fisher + base)  # gamma sum N F + N F + 1 / sigma_prior^2
        self.centre = self.importance = self.fresh = None

    def state(self) -> dict[str, Tensor]:
        if self.centre is None or self.importance is None:
            return {}
        known = {"centre": self.centre, "importance": self.importance}
        return current_state(known if self.fresh is None else known | {"fresh": self.fresh})

    def load_state(self, model: ContinualModel, state: Mapping[str, Tensor]) -> None:
        current = {name: tensor.to(model.device) for name, tensor in of_current(state).items()}
        self.centre, self.importance = current.get("centre"), current.get("importance")
        self.fresh = current.get("fresh")


register_strategy(
    StrategyPart(
        name="ewc",
        phrase="online EWC",
        settings=(EWCSettings,),
        build=lambda parts, context: OnlineEWC(parts.get(EWCSettings), context.prior),
    )
)

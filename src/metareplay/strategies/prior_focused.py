"""Prior-focused continual learning: the last posterior is the next prior.

[Henning2021, SM sec. Prior-Focused Continual Learning] With a mean-field Gaussian this is variational continual
learning (VCL, Nguyen et al. 2018). An implicit posterior is known by its samples only (sm:sec:prior:focused,
"Prior-focused CL with implicit distributions").
"""

from collections.abc import Mapping
from typing import final

from torch import Tensor

from metareplay.benchmarks.base import TaskData
from metareplay.model import ContinualModel
from metareplay.posteriors.base import Prior
from metareplay.posteriors.families.gaussian import MeanFieldGaussian
from metareplay.posteriors.priors.earlier import LastPosterior, with_fixed_prior
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.strategies.base import (
    QuietStrategy,
    StrategyPart,
    current_state,
    of_current,
    register_strategy,
)


@final
class PriorFocused(QuietStrategy):
    """One shared posterior, updated recursively: q^(1:T) is proportional to p(D^(T) | W) q^(1:T-1).

    The weights of a new head have no last posterior; their prior is the fixed one.
    """

    def __init__(self, first: GaussianPrior) -> None:
        super().__init__(first)
        self.first = first
        self.theta: Tensor | None = None
        """The last posterior's parameters, as they were before the task (P,)."""
        self.last: MeanFieldGaussian | LastPosterior | None = None

    def prior_for(self, task: int) -> Prior:
        return self.first if self.last is None else self.last

    def before_task(self, model: ContinualModel, task: int) -> None:
        self._keep(model, model.task_map.theta(task - 1).detach().clone() if task > 0 else None)

    def _keep(self, model: ContinualModel, theta: Tensor | None) -> None:
        self.theta, self.last = theta, None
        if theta is None:
            return
        posterior = model.family.at(theta, model.spec)  # q^(1:T-1), SM sec. VCL, for the old weights of a grown theta
        if isinstance(posterior, MeanFieldGaussian):
            self.last = with_fixed_prior(posterior, self.first, model.fresh)
        else:
            self.last = LastPosterior(posterior, self.first, model.fresh)

    def after_task(self, model: ContinualModel, task: int, data: TaskData) -> None:
        self.theta = self.last = None

    def state(self) -> dict[str, Tensor]:
        return {} if self.theta is None else current_state({"theta": self.theta})

    def load_state(self, model: ContinualModel, state: Mapping[str, Tensor]) -> None:
        theta = of_current(state).get("theta")
        self._keep(model, None if theta is None else theta.to(model.device))


register_strategy(
    StrategyPart(
        name="prior-focused",
        phrase="the last posterior as the next prior",
        build=lambda parts, context: PriorFocused(context.prior),
        recursive=True,
    )
)

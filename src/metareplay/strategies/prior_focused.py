"""Prior-focused continual learning: the last posterior is the next prior [Henning2021, SM sec. Prior-Focused Continual Learning].

With a mean-field Gaussian this is variational continual learning (VCL, Nguyen et al. 2018).
"""

from typing import cast, final

import torch
from torch import Tensor

from metareplay.model import ContinualModel
from metareplay.posteriors.base import Prior
from metareplay.posteriors.gaussian import GaussianPrior, MeanFieldGaussian
from metareplay.strategies.base import QuietStrategy


@final
class PriorFocused(QuietStrategy):
    """One shared posterior, updated recursively: q^(1:T) is proportional to p(D^(T) | W) q^(1:T-1).

    The weights of a new head have no last posterior; they take the fixed prior.
    """

    def __init__(self, first: GaussianPrior) -> None:
        super().__init__(first)
        self.first = first
        self.last: MeanFieldGaussian | None = None

    def prior_for(self, task: int) -> Prior:
        return self.first if self.last is None else self.last

    def before_task(self, model: ContinualModel, task: int) -> None:
        self.last = None
        if task == 0:
            return
        with torch.no_grad():
            posterior = cast(MeanFieldGaussian, model.posterior(task - 1))
            mean = torch.where(model.fresh, 0.0, posterior.mean)  # (W,)
            scale = torch.where(model.fresh, self.first.variance**0.5, posterior.scale)  # (W,)
        self.last = MeanFieldGaussian(mean.clone(), scale.clone())  # q^(1:T-1), SM sec. VCL

    def tensors(self) -> dict[str, Tensor]:
        return {} if self.last is None else {"mean": self.last.mean, "scale": self.last.scale}

    def restore(self, model: ContinualModel, task: int, tensors: dict[str, Tensor]) -> None:
        self.last = MeanFieldGaussian(tensors["mean"], tensors["scale"]) if tensors else None

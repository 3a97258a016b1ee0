"""Closed-form classifiers: Gaussian classes that share one covariance, whose decision is a linear layer of the inputs.

Nearest class mean (``nmc``) takes one variance for all directions, streaming linear discriminant analysis (``slda``)
the full covariance [Hayes and Kanan 2020]. Counts, means and scatter are updated exactly, in any order of tasks.
"""

from collections.abc import Mapping
from typing import ClassVar, cast, final

import torch
from pydantic import Field
from torch import Tensor

from metareplay.benchmarks.base import TaskData
from metareplay.errors import ConfigError
from metareplay.model import ContinualModel
from metareplay.nets.registry import is_linear
from metareplay.posteriors.base import Prior
from metareplay.settings import Composition, Settings
from metareplay.strategies.base import QuietStrategy, StrategyPart, register_strategy
from metareplay.task_maps.direct import SharedParameters

WIDEST = 8192
"""The most inputs whose covariance is stored: 512 MiB in float64."""
AT_ONCE = 2000
"""Examples that are added together, so that memory does not grow with their number."""
NEVER = -1e4
"""The output of a class without examples."""


class ClassMeansSettings(Settings):
    """A linear layer in closed form."""

    group: ClassVar[str] = "strategy"

    def check(self, composition: Composition) -> None:
        """Only a linear layer has such weights."""
        network = composition.parts()["network"].phrase
        if not is_linear(network):
            raise ConfigError(
                f"{composition.method_name} computes one linear layer in closed form, but {network} has others; "
                "choose the network mlp, or features:NAME for the features of a pretrained network"
            )


class SharedCovarianceSettings(ClassMeansSettings):
    """A full covariance."""

    shrinkage: float = Field(
        1e-3, gt=0, le=1, description="shrinkage of the common covariance towards a sphere of the same mean variance"
    )


@final
class ClassMeans(QuietStrategy):
    """Keeps count and mean of every class, and the scatter around them; from these it computes theta."""

    takes_steps = False
    keeps_revised = True

    def __init__(self, prior: Prior, shrinkage: float | None) -> None:
        super().__init__(prior)
        self.shrinkage = shrinkage
        """Of the full covariance; None: the same variance in all directions."""
        self.counts = torch.zeros(0, dtype=torch.float64)
        self.means: Tensor | None = None
        self.scatter: Tensor | None = None

    def before_task(self, model: ContinualModel, task: int) -> None:
        width = model.spec.shapes[0][1]
        if self.shrinkage is not None and width > WIDEST:
            raise ConfigError(
                f"slda stores the covariance of {width} inputs, more than {WIDEST}; choose nmc, which stores only "
                "means, or the features of a pretrained network (network features:NAME)"
            )

    def after_task(self, model: ContinualModel, task: int, data: TaskData) -> None:
        for x, y in zip(data.x.split(AT_ONCE), data.y.split(AT_ONCE), strict=True):
            self._add(x.flatten(1).double(), y, model.outputs)
        weight, bias = self._layer()
        named = {model.spec.names[0]: weight, model.spec.names[1]: bias}
        theta = torch.cat([named[name].reshape(-1) for name in model.spec.names])  # (W,)
        cast(SharedParameters, model.task_map).shared.copy_(theta)

    def _add(self, x: Tensor, y: Tensor, outputs: int) -> None:
        """Some more examples (n, F) with outputs as targets (n,)."""
        width = x.shape[1]
        means, scatter = self.means, self.scatter
        if means is None or scatter is None:
            means = torch.zeros(0, width, dtype=torch.float64)
            scatter = torch.zeros(() if self.shrinkage is None else (width, width), dtype=torch.float64)
        new = outputs - len(self.counts)
        counts = torch.cat([self.counts, torch.zeros(new, dtype=torch.float64)])  # (C,)
        means = torch.cat([means, torch.zeros(new, width, dtype=torch.float64)])  # (C, F)
        batch = torch.bincount(y, minlength=outputs).double()
        of_batch = torch.zeros_like(means).index_add_(0, y, x) / batch.clamp_min(1).unsqueeze(1)  # (C, F)
        within = x - of_batch[y]  # (n, F)
        total = counts + batch
        between = (counts * batch / total.clamp_min(1)).sqrt().unsqueeze(1) * (of_batch - means)  # (C, F)
        rows = torch.cat([within, between])  # (n + C, F)
        self.scatter = scatter + (rows.square().sum() if self.shrinkage is None else rows.T @ rows)
        self.means = means + (batch / total.clamp_min(1)).unsqueeze(1) * (of_batch - means)
        self.counts = total

    def _layer(self) -> tuple[Tensor, Tensor]:
        """Weight (C, F) and bias (C,): log N(x; mean_c, S) up to what all classes share."""
        assert self.means is not None
        assert self.scatter is not None
        width, covariance = self.means.shape[1], self.scatter / self.counts.sum().clamp_min(1)
        if self.shrinkage is None:
            weight = self.means / (covariance / width).clamp_min(1e-12)  # S = s^2 I
        else:
            sphere = (covariance.trace() / width).clamp_min(1e-12) * torch.eye(width, dtype=torch.float64)
            shrunk = (1 - self.shrinkage) * covariance + self.shrinkage * sphere  # (F, F)
            weight = torch.cholesky_solve(self.means.T, torch.linalg.cholesky(shrunk)).T  # S^-1 mean_c; (C, F)
        bias = -0.5 * (weight * self.means).sum(1)  # -1/2 mean_c' S^-1 mean_c; (C,)
        return weight, torch.where(self.counts > 0, bias, NEVER)

    def state(self) -> dict[str, Tensor]:
        if self.means is None or self.scatter is None:
            return {}
        return {"counts": self.counts, "means": self.means, "scatter": self.scatter}

    def load_state(self, model: ContinualModel, state: Mapping[str, Tensor]) -> None:
        self.counts = state.get("counts", torch.zeros(0, dtype=torch.float64))
        self.means, self.scatter = state.get("means"), state.get("scatter")


register_strategy(
    StrategyPart(
        name="class-means",
        phrase="class means, in closed form",
        settings=(ClassMeansSettings,),
        closed_form=True,
        build=lambda parts, context: ClassMeans(context.prior, None),
    )
)
register_strategy(
    StrategyPart(
        name="shared-covariance",
        phrase="class means and their common covariance, in closed form",
        settings=(SharedCovarianceSettings,),
        closed_form=True,
        build=lambda parts, context: ClassMeans(context.prior, parts.get(SharedCovarianceSettings).shrinkage),
    )
)

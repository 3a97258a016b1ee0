"""Posterior meta-replay: keep the posteriors of old tasks while the hypernetwork learns a new one.

[Henning2021, eq. hnet:reg:analytic:divergence and eq. hnet:reg:l2]
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import cast, final

import torch
from torch import Generator, Tensor

from metareplay.hypernets.replay_distance import small_matrices_pay, squared_change
from metareplay.hypernets.task_maps import TaskMap
from metareplay.model import ContinualModel
from metareplay.posteriors.base import Prior
from metareplay.posteriors.divergences import replay_divergence
from metareplay.posteriors.gaussian import GaussianPrior, MeanFieldGaussian
from metareplay.posteriors.last_posterior import MixturePrior, with_fixed_prior
from metareplay.strategies.base import QuietStrategy
from metareplay.strategies.settings import StrategySettings


@final
class PosteriorReplay(QuietStrategy):
    """Penalise the change of old tasks' posteriors against a checkpoint of the hypernetwork taken before the task."""

    def __init__(self, settings: StrategySettings, prior: GaussianPrior) -> None:
        super().__init__(prior)
        self.settings, self.fixed = settings, prior
        self.checkpoint: TaskMap | None = None
        self.stored: Tensor | None = None
        self.mixture: MixturePrior | None = None
        self.kept: list[int] = []
        """The tasks whose posteriors are kept: all but those that are trained."""

    def prior_for(self, task: int) -> Prior:
        return self.fixed if self.mixture is None else self.mixture

    def before_task(self, model: ContinualModel, task: int) -> None:
        self.keep_all_but(model, [task])

    def keep_all_but(self, model: ContinualModel, trained: Sequence[int]) -> None:
        """Remember the posteriors of all tasks but these."""
        self.checkpoint, self.stored, self.mixture = None, None, None
        self.kept = [task for task in range(model.num_tasks) if task not in trained]
        if self.kept and (self.settings.strength > 0 or self.settings.prior_from_earlier > 0):
            self._keep(model, deepcopy(model.task_map))

    def _keep(self, model: ContinualModel, checkpoint: TaskMap) -> None:
        self.checkpoint, count = checkpoint.requires_grad_(False), len(self.kept)
        if self.settings.prior_from_earlier > 0:
            posteriors = model.family.at(checkpoint.thetas(self.kept), model.spec)  # q_s of all earlier tasks; (T, W)
            later = model.born > torch.tensor(self.kept).unsqueeze(1)  # what a task did not know when it was learned; (T, W)
            earlier = with_fixed_prior(cast(MeanFieldGaussian, posteriors), self.fixed, later)
            self.mixture = MixturePrior(self.fixed, earlier, count, self.settings.prior_from_earlier)  # sm:sec:graceful:forgetting
        needless = self.settings.penalty == "mse" and small_matrices_pay(checkpoint, min(count, self.settings.old_tasks or count))
        if self.settings.targets == "stored" and not needless:
            self.stored = checkpoint.thetas(self.kept)  # theta^(t',*) of eq. hnet:reg:analytic:divergence; (T, P)

    def penalty(self, model: ContinualModel, task: int, *, generator: Generator) -> Tensor | None:
        if self.checkpoint is None or self.settings.strength == 0:
            return None
        count, rows = len(self.kept), list(range(len(self.kept)))
        if self.settings.old_tasks is not None and self.settings.old_tasks < count:  # stochastic regularisation
            rows = torch.randperm(count, generator=generator)[: self.settings.old_tasks].tolist()
        tasks = [self.kept[row] for row in rows]
        current, weights = model.task_map, self.weights(tasks, max(self.kept) + 1)
        if self.settings.penalty == "mse":
            targets = None if self.stored is None else self.stored[rows]  # (R, P)
            total = squared_change(current, self.checkpoint, tasks, targets=targets, weights=weights)  # eq. hnet:reg:l2
        else:
            old = self.checkpoint.thetas(tasks) if self.stored is None else self.stored[rows]  # (R, P)
            new = current.thetas(tasks)
            change = replay_divergence(self.settings.penalty, model.family.at(old, model.spec), model.family.at(new, model.spec))  # (R,)
            total = change.sum() if weights is None else (weights * change).sum()
        return self.settings.strength / len(tasks) * total  # the mean over the old tasks that are regularised

    def weights(self, tasks: Sequence[int], task: int) -> Tensor | None:
        """Factors of old tasks' penalties while a task is learned (R,); None where all are 1. SM sec. Graceful forgetting."""
        given, discount = self.settings.task_strengths or (), self.settings.age_discount
        factors = [discount ** (task - 1 - old) * (given[old] if old < len(given) else 1.0) for old in tasks]
        return None if all(factor == 1 for factor in factors) else torch.tensor(factors)

    def tensors(self) -> dict[str, Tensor]:
        return {} if self.checkpoint is None else dict(self.checkpoint.state_dict())

    def restore(self, model: ContinualModel, task: int, tensors: dict[str, Tensor]) -> None:
        self.checkpoint, self.stored, self.mixture = None, None, None
        self.kept = [other for other in range(model.num_tasks) if other != task]
        if tensors:
            checkpoint = deepcopy(model.task_map)
            checkpoint.load_state_dict(tensors)
            self._keep(model, checkpoint)

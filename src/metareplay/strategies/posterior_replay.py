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

    def prior_for(self, task: int) -> Prior:
        return self.fixed if self.mixture is None else self.mixture

    def before_task(self, model: ContinualModel, task: int) -> None:
        self.checkpoint, self.stored, self.mixture = None, None, None
        if task > 0 and (self.settings.strength > 0 or self.settings.prior_from_earlier > 0):
            self._keep(model, deepcopy(model.task_map), task)

    def _keep(self, model: ContinualModel, checkpoint: TaskMap, task: int) -> None:
        self.checkpoint = checkpoint.requires_grad_(False)
        if self.settings.prior_from_earlier > 0:
            posteriors = model.family.at(checkpoint.thetas(range(task)), model.spec)  # q_s of all earlier tasks; (T, W)
            later = model.born > torch.arange(task).unsqueeze(1)  # what a task did not know when it was learned; (T, W)
            earlier = with_fixed_prior(cast(MeanFieldGaussian, posteriors), self.fixed, later)
            self.mixture = MixturePrior(self.fixed, earlier, task, self.settings.prior_from_earlier)  # sm:sec:graceful:forgetting
        needless = self.settings.penalty == "mse" and small_matrices_pay(checkpoint, min(task, self.settings.old_tasks or task))
        if self.settings.targets == "stored" and not needless:
            self.stored = checkpoint.thetas(range(task))  # theta^(t',*) of eq. hnet:reg:analytic:divergence; (T, P)

    def penalty(self, model: ContinualModel, task: int, *, generator: Generator) -> Tensor | None:
        if self.checkpoint is None or self.settings.strength == 0:
            return None
        tasks: Sequence[int] = range(task)
        if self.settings.old_tasks is not None and self.settings.old_tasks < task:  # stochastic regularisation
            tasks = torch.randperm(task, generator=generator)[: self.settings.old_tasks].tolist()
        current, weights = model.task_map, self.weights(tasks, task)
        if self.settings.penalty == "mse":
            targets = None if self.stored is None else self.stored[list(tasks)]  # (R, P)
            total = squared_change(current, self.checkpoint, tasks, targets=targets, weights=weights)  # eq. hnet:reg:l2
        else:
            old = self.checkpoint.thetas(tasks) if self.stored is None else self.stored[list(tasks)]  # (R, P)
            new = current.thetas(tasks)
            q_old, q_new = model.family.at(old, model.spec), model.family.at(new, model.spec)
            change = replay_divergence(self.settings.penalty, q_old, q_new, self.settings.penalty_samples, generator=generator)  # (R,)
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
        if tensors:
            checkpoint = deepcopy(model.task_map)
            checkpoint.load_state_dict(tensors)
            self._keep(model, checkpoint, task)

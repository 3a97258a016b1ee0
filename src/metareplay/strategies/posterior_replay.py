"""Posterior meta-replay: keep the posteriors of old tasks while the hypernetwork learns a new one.

[Henning2021, eq. hnet:reg:analytic:divergence and eq. hnet:reg:l2]
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import cast, final

import torch
from torch import Generator, Tensor

from metareplay.hypernets.hypernet import Hypernetwork
from metareplay.hypernets.replay_distance import small_matrices_pay, squared_change
from metareplay.model import ContinualModel
from metareplay.posteriors.divergences import replay_divergence
from metareplay.posteriors.gaussian import GaussianPrior
from metareplay.strategies.base import QuietStrategy
from metareplay.strategies.settings import StrategySettings


@final
class PosteriorReplay(QuietStrategy):
    """Penalise the change of old tasks' posteriors against a checkpoint of the hypernetwork taken before the task."""

    def __init__(self, settings: StrategySettings, prior: GaussianPrior) -> None:
        super().__init__(prior)
        self.settings = settings
        self.checkpoint: Hypernetwork | None = None
        self.stored: Tensor | None = None

    def before_task(self, model: ContinualModel, task: int) -> None:
        self.checkpoint, self.stored = None, None
        if task > 0 and self.settings.strength > 0:
            self._keep(deepcopy(cast(Hypernetwork, model.task_map)), task)

    def _keep(self, checkpoint: Hypernetwork, task: int) -> None:
        self.checkpoint = checkpoint.requires_grad_(False)
        needless = self.settings.penalty == "mse" and small_matrices_pay(checkpoint, min(task, self.settings.old_tasks or task))
        if self.settings.targets == "stored" and not needless:
            self.stored = checkpoint.thetas(range(task))  # theta^(t',*) of eq. hnet:reg:analytic:divergence; (T, P)

    def penalty(self, model: ContinualModel, task: int, *, generator: Generator) -> Tensor | None:
        if self.checkpoint is None:
            return None
        tasks: Sequence[int] = range(task)
        if self.settings.old_tasks is not None and self.settings.old_tasks < task:  # stochastic regularisation
            tasks = torch.randperm(task, generator=generator)[: self.settings.old_tasks].tolist()
        current = cast(Hypernetwork, model.task_map)
        if self.settings.penalty == "mse":
            targets = None if self.stored is None else self.stored[list(tasks)]  # (R, P)
            total = squared_change(current, self.checkpoint, tasks, targets=targets)  # eq. hnet:reg:l2
        else:
            old = self.checkpoint.thetas(tasks) if self.stored is None else self.stored[list(tasks)]  # (R, P)
            new = current.thetas(tasks)
            total = replay_divergence(self.settings.penalty, model.family.at(old, model.spec), model.family.at(new, model.spec)).sum()
        return self.settings.strength / len(tasks) * total  # the mean over the old tasks that are regularised

    def tensors(self) -> dict[str, Tensor]:
        return {} if self.checkpoint is None else dict(self.checkpoint.state_dict())

    def restore(self, model: ContinualModel, task: int, tensors: dict[str, Tensor]) -> None:
        self.checkpoint, self.stored = None, None
        if tensors:
            checkpoint = deepcopy(cast(Hypernetwork, model.task_map))
            checkpoint.load_state_dict(tensors)
            self._keep(checkpoint, task)

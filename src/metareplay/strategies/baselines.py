"""Strategies that do nothing against forgetting: separate posteriors, fine-tuning, and joint training (the upper bound)."""

from typing import final

import torch
from torch import Generator, Tensor

from metareplay.errors import ConfigError
from metareplay.model import ContinualModel
from metareplay.posteriors.gaussian import GaussianPrior
from metareplay.strategies.base import TrainingData


@final
class Unbound:
    """Each task is learned on its own data and nothing else. Whether that forgets depends on who stores theta."""

    def __init__(self, prior: GaussianPrior) -> None:
        self.prior = prior

    def prior_for(self, task: int) -> GaussianPrior:
        return self.prior

    def data_for(self, task: int, data: TrainingData) -> TrainingData:
        return data

    def before_task(self, model: ContinualModel, task: int) -> None:
        return None

    def penalty(self, model: ContinualModel, task: int, *, generator: Generator) -> Tensor | None:
        return None

    def after_task(self, model: ContinualModel, task: int, data: TrainingData) -> None:
        return None

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def restore(self, model: ContinualModel, task: int, tensors: dict[str, Tensor]) -> None:
        return None


@final
class Joint:
    """Train on the data of all tasks so far: what would be reached if nothing had to be remembered."""

    def __init__(self, prior: GaussianPrior) -> None:
        self.inner = Unbound(prior)
        self.seen: list[TrainingData] = []

    def prior_for(self, task: int) -> GaussianPrior:
        return self.inner.prior_for(task)

    def data_for(self, task: int, data: TrainingData) -> TrainingData:
        if len(self.seen) < task:
            raise ConfigError(
                f"joint training of task {task} needs the data of all {task} earlier tasks, but only {len(self.seen)} are at hand; "
                "learn them again in this process, or choose a method that needs no old data, e.g. pr-bbb"
            )
        self.seen = [*self.seen[:task], data]
        return TrainingData(torch.cat([part.x for part in self.seen]), torch.cat([part.y for part in self.seen]))

    def before_task(self, model: ContinualModel, task: int) -> None:
        return None

    def penalty(self, model: ContinualModel, task: int, *, generator: Generator) -> Tensor | None:
        return None

    def after_task(self, model: ContinualModel, task: int, data: TrainingData) -> None:
        return None

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def restore(self, model: ContinualModel, task: int, tensors: dict[str, Tensor]) -> None:
        return None

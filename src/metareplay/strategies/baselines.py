"""Strategies with no measures against forgetting: separate posteriors, fine-tuning, joint training (upper bound)."""

from collections.abc import Callable
from typing import final

import torch

from metareplay.benchmarks.base import TaskData
from metareplay.errors import ConfigError
from metareplay.model import ContinualModel
from metareplay.posteriors.base import Prior
from metareplay.strategies.base import QuietStrategy, StrategyPart, register_strategy


@final
class Unbound(QuietStrategy):
    """Each task is learned from its own data only. Whether that forgets depends on who stores theta."""


@final
class Joint(QuietStrategy):
    """Train on the data of all tasks so far: the upper bound, as if nothing had to be remembered."""

    def __init__(self, prior: Prior) -> None:
        super().__init__(prior)
        self.seen: list[TaskData] = []

    def data_for(self, task: int, data: TaskData) -> TaskData:
        if len(self.seen) < task:
            raise ConfigError(
                f"joint training of task {task} needs the data of all {task} earlier tasks, "
                f"but only {len(self.seen)} are available; "
                "learn them again in this process, or choose a method that needs no old data, e.g. pr-bbb"
            )
        self.seen = [*self.seen[:task], data]
        return TaskData(torch.cat([part.x for part in self.seen]), torch.cat([part.y for part in self.seen]))

    def before_revision(self, model: ContinualModel, task: int, *, resumed: bool) -> None:
        raise ConfigError(
            "joint training cannot update a known task: it learns from the data of all tasks at once; "
            "learn it again with all data, or choose a method such as pr-bbb"
        )

    def revisit(self, task: int, data: Callable[[], TaskData]) -> None:
        self.seen = [*self.seen[:task], data()]


register_strategy(
    StrategyPart(
        name="unbound",
        phrase="no measures against forgetting",
        build=lambda parts, context: Unbound(context.prior),
    )
)
register_strategy(
    StrategyPart(name="joint", phrase="the data of all tasks so far", build=lambda parts, context: Joint(context.prior))
)

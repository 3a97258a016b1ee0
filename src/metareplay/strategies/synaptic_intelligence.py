"""Synaptic intelligence: hold the weights whose changes lowered the loss of earlier tasks [Zenke2017].

While a task is learned, every weight sums up how much its changes lowered the loss, the path integral of gradient times
change. After the task this sum, divided by how far the weight came, is added to the weight's importance, and a
quadratic penalty holds important weights where they are.
"""

from collections.abc import Mapping
from typing import ClassVar, final

import torch
from pydantic import Field
from torch import Generator, Tensor

from metareplay.benchmarks.base import TaskData
from metareplay.kernels.quadratic import quadratic_change
from metareplay.model import ContinualModel
from metareplay.posteriors.base import Prior
from metareplay.settings import Settings
from metareplay.strategies.base import (
    QuietStrategy,
    StepChange,
    StrategyPart,
    current_state,
    of_current,
    register_strategy,
)

IMPORTANCE = "importance"


class IntelligenceSettings(Settings):
    """How strongly important weights are held."""

    group: ClassVar[str] = "strategy"
    strength: float = Field(0.1, ge=0, description="weight of the penalty: c")
    damping: float = Field(
        0.1,
        gt=0,
        description="xi, added to the squared distance that a weight has moved: weights that hardly moved count less",
    )


@final
class SynapticIntelligence(QuietStrategy):
    """Keeps each weight near its last value, in proportion to what it contributed to all tasks so far."""

    sees_steps = True

    keeps_revised = True

    def __init__(self, settings: IntelligenceSettings, prior: Prior) -> None:
        super().__init__(prior)
        self.settings = settings
        self.importance: Tensor | None = None
        """Omega of all finished tasks (W,); None before the first has ended."""
        self.start: Tensor | None = None
        """The weights when the task began (W,)."""
        self.path: Tensor | None = None
        """The path integral of the task so far (W,)."""

    def before_task(self, model: ContinualModel, task: int) -> None:
        self.start = model.task_map.trained_theta(task).detach().clone()
        self.path = torch.zeros_like(self.start)
        if self.importance is not None and model.old_positions is not None:
            grown = torch.zeros_like(self.start)  # new outputs have contributed nothing
            grown[model.old_positions] = self.importance.to(grown.device)  # (W before,) -> (W,)
            self.importance = grown

    def before_revision(self, model: ContinualModel, task: int, *, resumed: bool) -> None:
        if not resumed:
            self.start = model.task_map.trained_theta(task).detach().clone()
            self.path = torch.zeros_like(self.start)

    def penalty(self, model: ContinualModel, task: int, *, generator: Generator) -> Tensor | None:
        if self.importance is None or self.start is None or self.settings.strength == 0:
            return None
        weights = model.task_map.trained_theta(task)  # (W,)
        # c sum_i Omega_i (w_i - w*_i)^2, [Zenke2017, eq. 4]; (W,) -> ()
        return quadratic_change(2 * self.settings.strength * self.importance, self.start, weights)

    def after_step(self, model: ContinualModel, task: int, step: StepChange, *, generator: Generator) -> None:
        if self.path is None or self.start is None:
            return
        parameter, gradient, change = (tensors[0] for tensors in step[1:])  # one vector holds all weights; (W,)
        if self.importance is not None:  # the path is that of the task's own loss, without the penalty
            before = parameter.detach() - change
            gradient = gradient - 2 * self.settings.strength * self.importance * (before - self.start)
        self.path -= gradient * change  # [Zenke2017, eq. 3]

    def after_task(self, model: ContinualModel, task: int, data: TaskData) -> None:
        if self.path is None or self.start is None:
            return
        distance = model.task_map.trained_theta(task).detach() - self.start
        gained = self.path.clamp_min(0) / (distance.square() + self.settings.damping)  # [Zenke2017, eq. 5]
        self.importance = gained if self.importance is None else self.importance + gained
        self.start = self.path = None

    def state(self) -> dict[str, Tensor]:
        lasting = {} if self.importance is None else {IMPORTANCE: self.importance}
        if self.start is None or self.path is None:
            return lasting
        return lasting | current_state({"start": self.start, "path": self.path})

    def load_state(self, model: ContinualModel, state: Mapping[str, Tensor]) -> None:
        current = {name: tensor.to(model.device) for name, tensor in of_current(state).items()}
        self.importance, self.start, self.path = state.get(IMPORTANCE), current.get("start"), current.get("path")
        if self.importance is not None:
            self.importance = self.importance.to(model.device)


register_strategy(
    StrategyPart(
        name="synaptic-intelligence",
        phrase="synaptic intelligence",
        settings=(IntelligenceSettings,),
        build=lambda parts, context: SynapticIntelligence(parts.get(IntelligenceSettings), context.prior),
    )
)

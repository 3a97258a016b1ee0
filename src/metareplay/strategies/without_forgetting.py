"""Learning without forgetting: on the new task's inputs, keep the outputs of the previous model [Li2016]."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, final

from pydantic import Field
from torch import Generator, Tensor, no_grad

from metareplay.batches.base import Batch
from metareplay.benchmarks.base import TaskData
from metareplay.model import ContinualModel
from metareplay.posteriors.base import Prior
from metareplay.settings import Settings
from metareplay.strategies.base import QuietStrategy, StrategyPart, current_state, of_current, register_strategy


class DistillationSettings(Settings):
    """How strongly the outputs of the previous model are kept."""

    group: ClassVar[str] = "strategy"
    strength: float = Field(1.0, ge=0, description="weight of the distillation penalty, relative to the data term")
    temperature: float = Field(2.0, gt=0, description="divisor of the outputs before the softmax, on both sides")


@final
class WithoutForgetting(QuietStrategy):
    """Keeps no example: the new inputs themselves are labelled by the model as it was before the task."""

    def __init__(self, settings: DistillationSettings, prior: Prior) -> None:
        super().__init__(prior)
        self.settings = settings
        self.checkpoint: Tensor | None = None
        """theta as it was before the task (P,)."""
        self.batch: Tensor | None = None
        """The inputs of this step."""
        self.examples = 0

    def data_for(self, task: int, data: TaskData) -> TaskData:
        self.examples = len(data.x)
        return data

    def before_task(self, model: ContinualModel, task: int) -> None:
        self.checkpoint = model.task_map.theta(task).detach().clone() if task > 0 and self.settings.strength else None

    def batches_for(self, model: ContinualModel, task: int, batch: Batch, *, generator: Generator) -> Sequence[Batch]:
        self.batch = batch.x
        return (batch,)

    def penalty(self, model: ContinualModel, task: int, *, generator: Generator) -> Tensor | None:
        if self.checkpoint is None or self.batch is None:
            return None
        known, temperature = max(head.stop for head in model.heads[:task]), self.settings.temperature
        with no_grad():
            before = model.family.at(self.checkpoint, model.spec)
            teacher = model.run(before, self.batch, 1, task - 1, generator=generator)[0, :, :known]  # (B, known)
        outputs = model.run(model.posterior(task), self.batch, 1, task, generator=generator, train=True)  # (1, B, C)
        loss = model.likelihood.distillation(outputs[..., :known] / temperature, teacher / temperature)
        return self.examples * self.settings.strength * temperature**2 * loss  # [Li2016, eq. 2], gradients as large

    def after_task(self, model: ContinualModel, task: int, data: TaskData) -> None:
        self.checkpoint = self.batch = None

    def state(self) -> dict[str, Tensor]:
        return {} if self.checkpoint is None else current_state({"checkpoint": self.checkpoint})

    def load_state(self, model: ContinualModel, state: Mapping[str, Tensor]) -> None:
        checkpoint = of_current(state).get("checkpoint")
        self.checkpoint, self.batch = None if checkpoint is None else checkpoint.to(model.device), None


register_strategy(
    StrategyPart(
        name="without-forgetting",
        phrase="learning without forgetting",
        settings=(DistillationSettings,),
        build=lambda parts, context: WithoutForgetting(parts.get(DistillationSettings), context.prior),
    )
)

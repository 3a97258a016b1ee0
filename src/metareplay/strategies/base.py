"""The contract of strategies: few hooks, each a question with an answer."""

from typing import NamedTuple, Protocol

from torch import Generator, Tensor

from metareplay.benchmarks.base import TaskData
from metareplay.model import ContinualModel
from metareplay.posteriors.base import Prior


class LossTerms(NamedTuple):
    """The parts of the loss of one step, each already scaled."""

    data: Tensor
    prior: Tensor
    replay: Tensor

    @property
    def total(self) -> Tensor:
        """What is minimised."""
        return self.data + self.prior + self.replay


class Strategy(Protocol):
    """What binds the tasks: prior, penalty, extra data."""

    def prior_for(self, task: int) -> Prior:
        """The prior of this task's posterior."""
        ...

    def data_for(self, task: int, data: TaskData) -> TaskData:
        """What to train on, given the task's own data."""
        ...

    def before_task(self, model: ContinualModel, task: int) -> None:
        """Remember what the model was; called once the new task has its place in it."""
        ...

    def penalty(self, model: ContinualModel, task: int, *, generator: Generator) -> Tensor | None:
        """The term that keeps old tasks, already scaled; None where there is none."""
        ...

    def after_task(self, model: ContinualModel, task: int, data: TaskData) -> None:
        """Take from the learned task what later ones need; called once its last step is done."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """What ``before_task`` remembered, for a checkpoint."""
        ...

    def restore(self, model: ContinualModel, task: int, tensors: dict[str, Tensor]) -> None:
        """Remember again what a checkpoint holds."""
        ...

    def memory(self) -> dict[str, Tensor]:
        """What must outlast a task, e.g. stored inputs: kept in every checkpoint and with a saved model."""
        ...

    def recall(self, memory: dict[str, Tensor]) -> None:
        """Have this memory and no other."""
        ...


class QuietStrategy:
    """Answers every question with nothing; a strategy derives from it and answers those it cares about."""

    def __init__(self, prior: Prior) -> None:
        self.prior = prior

    def prior_for(self, task: int) -> Prior:
        return self.prior

    def data_for(self, task: int, data: TaskData) -> TaskData:
        return data

    def before_task(self, model: ContinualModel, task: int) -> None:
        return None

    def penalty(self, model: ContinualModel, task: int, *, generator: Generator) -> Tensor | None:
        return None

    def after_task(self, model: ContinualModel, task: int, data: TaskData) -> None:
        return None

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def restore(self, model: ContinualModel, task: int, tensors: dict[str, Tensor]) -> None:
        return None

    def memory(self) -> dict[str, Tensor]:
        return {}

    def recall(self, memory: dict[str, Tensor]) -> None:
        return None

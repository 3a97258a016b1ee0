"""The contract of strategies: few hooks, each a question with an answer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from torch import Generator, Tensor, nn

from metareplay.batches.base import Batch, Batches
from metareplay.benchmarks.base import Problem, TaskData
from metareplay.model import ContinualModel
from metareplay.parts import Registry
from metareplay.posteriors.base import Prior
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.settings import Composition, Part


class LossTerms(NamedTuple):
    """The parts of the loss of one step, each already scaled."""

    data: Tensor
    prior: Tensor
    replay: Tensor

    @property
    def total(self) -> Tensor:
        """What is minimised."""
        return self.data + self.prior + self.replay


class StepChange(NamedTuple):
    """A training step that was just taken: what it learned from, and what it did to each trained parameter."""

    batches: Sequence[Batch]
    parameters: Sequence[nn.Parameter]
    gradients: Sequence[Tensor]
    """Of the whole loss, as the optimiser saw them."""
    change: Sequence[Tensor]
    """Each parameter after the step minus before."""


@dataclass(frozen=True)
class Update:
    """Training of tasks that were learned before, all together, on something that the strategy kept."""

    title: str
    batches: Mapping[int, Batches]
    """What each of the tasks learns from."""
    examples: TaskData
    """All of it, for whatever follows the last step."""
    training: Mapping[str, Any]
    """Settings of training that differ from a task's."""
    prior_scale: float | None
    """Factor of the prior-matching term; None: as for a task."""
    seed: int
    """Fixes the random numbers of this update."""


class Strategy(Protocol):
    """What binds the tasks: prior, penalty, extra data, and what a step or a task leaves behind."""

    sees_steps: bool
    """Whether ``after_step`` has to be told of every step."""

    def prior_for(self, task: int) -> Prior:
        """The prior of this task's posterior."""
        ...

    def data_for(self, task: int, data: TaskData) -> TaskData:
        """What to train on, given the task's own data; the same whenever a run is resumed."""
        ...

    def revisit(self, task: int, data: Callable[[], TaskData]) -> None:
        """After a restart: the data of a finished task, for strategies that need them again."""
        ...

    def before_task(self, model: ContinualModel, task: int) -> None:
        """Remember what the model was; called once the new task has its place in it."""
        ...

    def batches_for(self, model: ContinualModel, task: int, batch: Batch, *, generator: Generator) -> Sequence[Batch]:
        """What this step learns from, given the next batch of the task's own data; asked in every step."""
        ...

    def penalty(self, model: ContinualModel, task: int, *, generator: Generator) -> Tensor | None:
        """The term that keeps old tasks, already scaled; None where there is none."""
        ...

    def after_step(self, model: ContinualModel, task: int, step: StepChange, *, generator: Generator) -> None:
        """See what a step did, and learn beside it: a strategy that trains something has an optimiser of its own."""
        ...

    def after_task(self, model: ContinualModel, task: int, data: TaskData) -> None:
        """Take from the learned task what later ones need, and forget what only this one needed."""
        ...

    def begin_update(self, model: ContinualModel, tasks: Sequence[int], *, again: bool) -> Update | None:
        """Begin to train learned tasks on what was kept of them; None where nothing was."""
        ...

    def resume_update(self, model: ContinualModel) -> Update:
        """The update that was under way when ``state`` was taken."""
        ...

    def state(self) -> dict[str, Tensor]:
        """All that it remembers now: of a task that is learned as much as it takes to go on, of old tasks what must last."""
        ...

    def load_state(self, model: ContinualModel, state: Mapping[str, Tensor]) -> None:
        """Remember this and nothing else; the model is as it was when the state was taken."""
        ...


class QuietStrategy:
    """Answers every question with nothing; a strategy derives from it and answers those it cares about."""

    sees_steps = False

    def __init__(self, prior: Prior) -> None:
        self.prior = prior

    def prior_for(self, task: int) -> Prior:
        return self.prior

    def data_for(self, task: int, data: TaskData) -> TaskData:
        return data

    def revisit(self, task: int, data: Callable[[], TaskData]) -> None:
        return None

    def before_task(self, model: ContinualModel, task: int) -> None:
        return None

    def batches_for(self, model: ContinualModel, task: int, batch: Batch, *, generator: Generator) -> Sequence[Batch]:
        return (batch,)

    def penalty(self, model: ContinualModel, task: int, *, generator: Generator) -> Tensor | None:
        return None

    def after_step(self, model: ContinualModel, task: int, step: StepChange, *, generator: Generator) -> None:
        return None

    def after_task(self, model: ContinualModel, task: int, data: TaskData) -> None:
        return None

    def begin_update(self, model: ContinualModel, tasks: Sequence[int], *, again: bool) -> Update | None:
        return None

    def resume_update(self, model: ContinualModel) -> Update:
        raise NotImplementedError(f"{type(self).__name__} begins no updates")

    def state(self) -> dict[str, Tensor]:
        return {}

    def load_state(self, model: ContinualModel, state: Mapping[str, Tensor]) -> None:
        return None


CURRENT = "current."
"""How the names of states begin that a task needs only while it is learned."""


def current_state(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors under names that say that only the present task needs them."""
    return {f"{CURRENT}{name}": tensor for name, tensor in tensors.items()}


def of_current(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The reverse of ``current_state``."""
    return {name.removeprefix(CURRENT): tensor for name, tensor in state.items() if name.startswith(CURRENT)}


@dataclass(frozen=True)
class StrategyContext:
    """What a strategy is made with, besides its settings."""

    prior: GaussianPrior
    seed: int
    problem: Problem = "classification"


@dataclass(frozen=True, kw_only=True)
class StrategyPart(Part):
    """A strategy that methods can name."""

    build: Callable[[Composition, StrategyContext], Strategy]


STRATEGIES: Registry[StrategyPart] = Registry("strategy", "uses")
register_strategy = STRATEGIES.register

"""The contract of strategies: a few hooks, each a question with a return value."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import Generator, Tensor, nn

from metareplay.batches.base import Batch, Batches
from metareplay.benchmarks.base import Problem, TaskData
from metareplay.model import ContinualModel
from metareplay.parts import Registry
from metareplay.posteriors.base import Prior, PriorSource
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.settings import Composition


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
    """A training step that was just taken: its batches, and what it did to each trained parameter."""

    batches: Sequence[Batch]
    parameters: Sequence[nn.Parameter]
    gradients: Sequence[Tensor]
    """Of the whole loss, before they were clipped."""
    change: Sequence[Tensor]
    """Each parameter after the step, minus its value before."""


@dataclass(frozen=True)
class Update:
    """Joint training of tasks that were already learned, on data that the strategy kept."""

    title: str
    batches: Mapping[int, Batches]
    """What each of the tasks learns from."""
    examples: TaskData
    """All of these examples, for whatever follows the last step."""
    training: Mapping[str, Any]
    """Training settings that differ from those of a task."""
    prior_scale: float | None
    """Factor of the prior-matching term; None: as for a task."""
    seed: int
    """Seed of the random numbers of this update."""


class Strategy(Protocol):
    """What binds the tasks: prior, penalty, extra data, and what a step or a task leaves behind."""

    sees_steps: bool
    """Whether ``after_step`` must be called after every step."""
    keeps_revised: bool
    """Whether its penalty also keeps what a revised task knew, so that no other measure is needed."""
    takes_steps: bool
    """Whether tasks are learned by training steps; if not, ``after_task`` computes theta."""

    def prior_for(self, task: int) -> Prior:
        """The prior of this task's posterior."""
        ...

    def data_for(self, task: int, data: TaskData) -> TaskData:
        """What to train on, given the task's data; the same whenever a run is resumed."""
        ...

    def revisit(self, task: int, data: Callable[[], TaskData]) -> None:
        """After a restart: the data of a finished task, for strategies that need them again."""
        ...

    def before_task(self, model: ContinualModel, task: int) -> None:
        """Remember the state of the model; called after the new task has been added to it."""
        ...

    def batches_for(self, model: ContinualModel, task: int, batch: Batch, *, generator: Generator) -> Sequence[Batch]:
        """What this step learns from, given the next batch of the task's data; called in every step."""
        ...

    def penalty(self, model: ContinualModel, task: int, *, generator: Generator) -> Tensor | None:
        """The penalty that protects old tasks, already scaled; None if there is none."""
        ...

    def after_step(self, model: ContinualModel, task: int, step: StepChange, *, generator: Generator) -> None:
        """Observe a step; a strategy that trains something itself does so here, with its own optimiser."""
        ...

    def after_task(self, model: ContinualModel, task: int, data: TaskData) -> None:
        """Keep what later tasks need from the learned task, and discard what only this one needed."""
        ...

    def before_revision(self, model: ContinualModel, task: int, *, resumed: bool) -> None:
        """Remember the state of all other tasks: a known one will be trained further, on new data.

        ``resumed``: after ``load_state``, so that this state is known already.
        """
        ...

    def remove_task(self, task: int) -> None:
        """Forget a task that the model no longer has; later ones move down."""
        ...

    def begin_update(self, model: ContinualModel, tasks: Sequence[int], *, again: bool) -> Update | None:
        """Begin to train learned tasks on what was kept of them; None if nothing was."""
        ...

    def resume_update(self, model: ContinualModel) -> Update:
        """The update that was under way when ``state`` was taken."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Everything it remembers: what old tasks need, and what the current task needs to be resumed."""
        ...

    def load_state(self, model: ContinualModel, state: Mapping[str, Tensor]) -> None:
        """Replace everything it remembers; the model is as it was when the state was taken."""
        ...


class QuietStrategy:
    """A strategy that does nothing; others derive from it and override the hooks they need."""

    sees_steps = False
    keeps_revised = False
    takes_steps = True

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

    def before_revision(self, model: ContinualModel, task: int, *, resumed: bool) -> None:
        return None

    def remove_task(self, task: int) -> None:
        return None

    def begin_update(self, model: ContinualModel, tasks: Sequence[int], *, again: bool) -> Update | None:
        return None

    def resume_update(self, model: ContinualModel) -> Update:
        raise NotImplementedError(f"{type(self).__name__} has no updates")

    def state(self) -> dict[str, Tensor]:
        return {}

    def load_state(self, model: ContinualModel, state: Mapping[str, Tensor]) -> None:
        return None


CURRENT = "current."
"""Prefix of the names of state that is needed only while a task is being learned."""


def current_state(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors under names that mark them as needed by the current task only."""
    return {f"{CURRENT}{name}": tensor for name, tensor in tensors.items()}


def of_current(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The reverse of ``current_state``."""
    return {name.removeprefix(CURRENT): tensor for name, tensor in state.items() if name.startswith(CURRENT)}


def state_of_part(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state of something that a strategy has, under names of its own, those of the current task still first."""
    return {
        f"{CURRENT}{prefix}{name.removeprefix(CURRENT)}" if name.startswith(CURRENT) else f"{prefix}{name}": tensor
        for name, tensor in state.items()
    }


def part_of_state(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The reverse of ``state_of_part``."""
    lasting = {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
    now = {name: tensor for name, tensor in of_current(state).items() if name.startswith(prefix)}
    return lasting | current_state({name.removeprefix(prefix): tensor for name, tensor in now.items()})


@runtime_checkable
class InfersTasks(Protocol):
    """A strategy that learns to tell the tasks of inputs apart."""

    def told_apart(self) -> int:
        """The number of tasks that it can tell apart."""
        ...

    def task_network(self) -> nn.Module:
        """Inputs -> logits of these tasks, (B, ...) -> (B, T); it is only read."""
        ...


@dataclass(frozen=True)
class StrategyContext:
    """What a strategy is built with, besides its settings."""

    prior: GaussianPrior
    seed: int
    problem: Problem = "classification"


@dataclass(frozen=True, kw_only=True)
class StrategyPart(PriorSource):
    """A strategy that methods can name."""

    build: Callable[[Composition, StrategyContext], Strategy]
    closed_form: bool = False
    """Whether it computes theta when a task ends, without training steps."""


STRATEGIES: Registry[StrategyPart] = Registry("strategy", "uses")
register_strategy = STRATEGIES.register

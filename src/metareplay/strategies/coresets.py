"""Coresets: a few examples of each task are held out to update its posterior later [Henning2021, sm:sec:coresets]."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Literal, final

import torch
from pydantic import Field, model_validator
from torch import Generator, Tensor

from metareplay.batches.coresets import coreset_batches
from metareplay.benchmarks.base import TaskData
from metareplay.errors import ConfigError, DataError
from metareplay.model import ContinualModel
from metareplay.posteriors.base import Prior
from metareplay.posteriors.priors.earlier import as_prior
from metareplay.seeding import derive_seed, generator_for
from metareplay.settings import Composition
from metareplay.strategies.base import (
    CURRENT,
    QuietStrategy,
    StrategyContext,
    StrategyPart,
    Update,
    current_state,
    of_current,
    register_strategy,
)
from metareplay.strategies.posterior_replay import PosteriorReplay
from metareplay.strategies.replay_settings import ReplayPriorSettings, ReplaySettings, family_of
from metareplay.task_maps.base import TaskMap

CORESET, LEARNED, PENDING = "coreset.", "learned.", "pending"
"""Names of stored tensors: examples; all posteriors as they were before an update; the tasks that it trains."""


class CoresetSettings(ReplaySettings):
    """Posterior replay, then fine-tuning on kept examples."""

    coreset_size: int = Field(100, ge=1, description="number of random examples of each task that are kept for later")
    finetune_iterations: int | None = Field(
        None, ge=1, description="steps of fine-tuning on coresets; null: as for a task"
    )
    finetune_epochs: int | None = Field(
        None, ge=1, description="passes over a modified coreset instead of steps; null: as for a task"
    )
    finetune_batch_size: int = Field(
        128, ge=2, description="examples of each task's modified coreset in a step of fine-tuning"
    )
    finetune_learning_rate: float | None = Field(
        None, gt=0, description="Adam's learning rate in fine-tuning; null: as for a task"
    )
    finetune_prior_scale: float | None = Field(
        None, ge=0, description="factor of the KL to the learned posterior in fine-tuning; null: posterior.prior_scale"
    )
    finetune_others: Literal["uniform", "random", "none"] | None = Field(
        None,
        description="targets of other tasks' inputs in fine-tuning: uniform; random (new labels in each step); "
        "none (leave them out); null: uniform for classification, none for regression",
    )
    finetune_own_share: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="share of a task's own coreset in its fine-tuning batches; null: its share of all coresets",
    )

    @model_validator(mode="after")
    def _one_length(self) -> "CoresetSettings":
        if self.finetune_iterations is not None and self.finetune_epochs is not None:
            raise ValueError("give finetune_iterations or finetune_epochs, not both")
        return self

    def without_effect(self, composition: Composition) -> Mapping[str, str]:
        """Shares of inputs that are left out; the prior of posteriors that have none."""
        unused = dict(super().without_effect(composition))
        if self.finetune_others == "none":
            unused["strategy.finetune_own_share"] = (
                "with strategy.finetune_others=none a task is fine-tuned on its own coreset alone"
            )
        if family_of(composition).point:
            unused["strategy.finetune_prior_scale"] = f"{family_of(composition).phrase} have no prior"
        return unused


@final
class CoresetReplay(QuietStrategy):
    """Posterior replay on D^(t) without the coreset C^(t); an update then uses the learned posteriors as priors.

    A coreset has ``coreset_size`` random examples with their targets, but at most half of the task's examples.
    """

    def __init__(self, settings: CoresetSettings, context: StrategyContext) -> None:
        super().__init__(context.prior)
        self.settings, self.seed, self.problem = settings, context.seed, context.problem
        if self.problem == "regression" and settings.finetune_others in ("uniform", "random"):
            raise ConfigError(
                f"strategy.finetune_others={settings.finetune_others} needs classes: no real-valued target can "
                "express that nothing is known about an input; remove it, or set it to none"
            )
        self.replay = PosteriorReplay(settings, context.prior, seed=context.seed)
        self.coresets: dict[int, TaskData] = {}
        self.uses: dict[int, int] = {}
        """How often each coreset has updated the posterior of its task."""
        self.learned: TaskMap | None = None
        """All posteriors as they were before the update that is under way."""
        self.stored: dict[int, Tensor] = {}
        self.pending: list[int] = []
        self.prior_at: Callable[[Tensor], Prior] = lambda theta: context.prior

    def data_for(self, task: int, data: TaskData) -> TaskData:
        size = min(self.settings.coreset_size, len(data.x) // 2)
        if size == 0:
            raise DataError(
                "the task has one training example, but a coreset needs at least two: one to learn from, one to keep"
            )
        generator = generator_for(self.seed, "coreset", task)  # the same whenever a run is resumed
        order = torch.randperm(len(data.x), generator=generator)
        kept, rest = order[:size], order[size:].sort().values
        self.coresets[task] = TaskData(data.x[kept], data.y[kept])  # C^(t)
        self.uses.setdefault(task, 0)
        return TaskData(data.x[rest], data.y[rest])  # D^(t) without C^(t), SM eq. cl:wo:cs:approx

    def prior_for(self, task: int) -> Prior:
        if self.learned is None:
            return self.replay.prior_for(task)
        theta = self.stored[task] if task in self.stored else self.learned.theta(task)
        return self.prior_at(theta)  # q with theta~^(t), the prior of eq. sm:eq:coresets

    def before_task(self, model: ContinualModel, task: int) -> None:
        self._close()
        self.replay.before_task(model, task)

    def before_revision(self, model: ContinualModel, task: int, *, resumed: bool) -> None:
        self._close()
        self.replay.before_revision(model, task, resumed=resumed)

    def remove_task(self, task: int) -> None:
        self.replay.remove_task(task)
        self.coresets = {old - (old > task): kept for old, kept in self.coresets.items() if old != task}
        self.uses = {old - (old > task): count for old, count in self.uses.items() if old != task}

    def begin_update(self, model: ContinualModel, tasks: Sequence[int], *, again: bool) -> Update | None:
        """From now on the posteriors of these tasks are priors; posterior replay protects those of all other tasks.

        A coreset is new evidence only once; using it a second time must be requested.
        """
        if (used := [task for task in tasks if self.uses[task]]) and not again:
            several = f"the coresets of tasks {', '.join(map(str, used))} have"
            raise ConfigError(
                f"{several if len(used) > 1 else f'the coreset of task {used[0]} has'} already updated the posterior; "
                "using the same examples again counts their evidence twice and makes the model overconfident. "
                "Pass again=True if you accept that"
            )
        self._open(model, tasks, deepcopy(model.task_map))
        return self.resume_update(model)

    def resume_update(self, model: ContinualModel) -> Update:
        """Multitask training on coresets; a single task is an ordinary Bayesian update, without other tasks' inputs."""
        settings, tasks = self.settings, self.pending
        seed = derive_seed(self.seed, "update", self.updates())
        others = settings.finetune_others or ("none" if self.problem == "regression" else "uniform")
        examples, batches = coreset_batches(
            [self.coresets[task] for task in tasks],
            [model.heads[task].stop - model.heads[task].start for task in tasks],
            others=others if len(tasks) > 1 else "none",
            own_share=settings.finetune_own_share,
            batch_size=settings.finetune_batch_size,
            generators=[generator_for(seed, "batches", task) for task in tasks],
        )
        batches_of_tasks = dict(zip(tasks, batches, strict=True))
        return Update("coresets", batches_of_tasks, examples, self._training(), settings.finetune_prior_scale, seed)

    def _training(self) -> dict[str, Any]:
        """How fine-tuning differs from the training of a task, whose schedule it does not share."""
        settings = self.settings
        training: dict[str, Any] = {"cosine": False, "rate_steps": (), "plateau_patience": None}
        training["batch_size"] = settings.finetune_batch_size
        if settings.finetune_learning_rate is not None:
            training["learning_rate"] = settings.finetune_learning_rate
        if settings.finetune_iterations or settings.finetune_epochs:
            training |= {"iterations": settings.finetune_iterations, "epochs": settings.finetune_epochs}
        return training

    def _open(self, model: ContinualModel, tasks: Sequence[int], learned: TaskMap) -> None:
        self._close()
        self.replay.keep_all_but(model, tasks, learned)
        self.learned, self.pending = learned.requires_grad_(False), list(tasks)
        self.prior_at = lambda theta: as_prior(model.family.at(theta, model.spec))
        if self.settings.targets == "stored":
            self.stored = dict(zip(tasks, learned.thetas(tasks), strict=True))  # (P,) each

    def _close(self) -> None:
        self.learned, self.stored, self.pending = None, {}, []

    def penalty(self, model: ContinualModel, task: int, *, generator: Generator) -> Tensor | None:
        return self.replay.penalty(model, task, generator=generator)

    def after_task(self, model: ContinualModel, task: int, data: TaskData) -> None:
        if task not in self.pending:
            self.replay.after_task(model, task, data)
            return
        self.uses[task] += 1
        self.pending.remove(task)
        if not self.pending:
            self._close()
            self.replay.forget_checkpoint()

    def updates(self) -> int:
        """The number of updates so far, summed over tasks."""
        return sum(self.uses.values())

    def state(self) -> dict[str, Tensor]:
        stored: dict[str, Tensor] = {}
        for task, coreset in self.coresets.items():
            stored |= {f"{CORESET}{task}.x": coreset.x, f"{CORESET}{task}.y": coreset.y}
            stored[f"{CORESET}{task}.uses"] = torch.tensor(self.uses[task])
        if self.learned is None:
            return stored | self.replay.state()
        learned = {f"{LEARNED}{name}": tensor for name, tensor in self.learned.state_dict().items()}
        return stored | self.replay.lasting_state() | current_state({**learned, PENDING: torch.tensor(self.pending)})

    def load_state(self, model: ContinualModel, state: Mapping[str, Tensor]) -> None:
        self._close()
        tasks = sorted(int(name.split(".")[1]) for name in state if name.startswith(CORESET) and name.endswith(".uses"))
        self.coresets = {task: TaskData(state[f"{CORESET}{task}.x"], state[f"{CORESET}{task}.y"]) for task in tasks}
        self.uses = {task: int(state[f"{CORESET}{task}.uses"]) for task in tasks}
        current = of_current(state)
        if not any(name.startswith(LEARNED) for name in current):
            self.replay.load_state(model, state)
            return
        self.replay.load_state(model, {name: tensor for name, tensor in state.items() if not name.startswith(CURRENT)})
        learned = deepcopy(model.task_map)
        learned.load_state_dict(
            {name.removeprefix(LEARNED): tensor for name, tensor in current.items() if name.startswith(LEARNED)}
        )
        everything = torch.arange(model.num_tasks)  # version 0.1 resumed updates of all tasks only
        self._open(model, current.get(PENDING, everything).tolist(), learned)


register_strategy(
    StrategyPart(
        name="coreset-replay",
        phrase="coreset replay",
        settings=(CoresetSettings, ReplayPriorSettings),
        build=lambda parts, context: CoresetReplay(parts.get(CoresetSettings), context),
    )
)

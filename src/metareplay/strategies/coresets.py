"""Coresets: a few examples of every task are held back, and update its posterior later [Henning2021, sm:sec:coresets]."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import final

import torch
from torch import Generator, Tensor

from metareplay.benchmarks.base import TaskData
from metareplay.errors import DataError
from metareplay.model import ContinualModel
from metareplay.posteriors.base import Prior
from metareplay.posteriors.priors.earlier import as_prior
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.seeding import generator_for
from metareplay.strategies.base import QuietStrategy
from metareplay.strategies.posterior_replay import PosteriorReplay
from metareplay.strategies.settings import StrategySettings
from metareplay.task_maps.base import TaskMap

LEARNED = "learned."


@final
class CoresetReplay(QuietStrategy):
    """Posterior replay on D^(t) without C^(t), the coreset; an update then takes the learned posteriors as priors of their tasks.

    A coreset has ``coreset_size`` random examples with their targets, but never more than half of the task's.
    """

    def __init__(self, settings: StrategySettings, prior: GaussianPrior, *, seed: int) -> None:
        super().__init__(prior)
        self.settings, self.seed = settings, seed
        self.replay = PosteriorReplay(settings, prior, seed=seed)
        self.coresets: dict[int, TaskData] = {}
        self.uses: dict[int, int] = {}
        """How often each coreset has updated the posterior of its own task."""
        self.learned: TaskMap | None = None
        """All posteriors as they were before the update that is under way."""
        self.stored: dict[int, Tensor] = {}
        self.pending: set[int] = set()
        self.prior_at: Callable[[Tensor], Prior] = lambda theta: prior

    def data_for(self, task: int, data: TaskData) -> TaskData:
        size = min(self.settings.coreset_size, len(data.x) // 2)
        if size == 0:
            raise DataError("the task has one training example; with a coreset it needs at least two: one to learn from, one to keep")
        order = torch.randperm(len(data.x), generator=generator_for(self.seed, "coreset", task))  # the same whenever a run is resumed
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

    def begin_update(self, model: ContinualModel, tasks: Sequence[int]) -> None:
        """From now on the posteriors of these tasks are priors; those of all other tasks are kept by posterior replay."""
        self._open(model, tasks, deepcopy(model.task_map))

    def _open(self, model: ContinualModel, tasks: Sequence[int], learned: TaskMap) -> None:
        self._close()
        self.replay.keep_all_but(model, tasks)
        self.learned, self.pending = learned.requires_grad_(False), set(tasks)
        self.prior_at = lambda theta: as_prior(model.family.at(theta, model.spec))
        if self.settings.targets == "stored":
            self.stored = dict(zip(tasks, learned.thetas(tasks), strict=True))  # (P,) each

    def _close(self) -> None:
        self.learned, self.stored, self.pending = None, {}, set()

    def penalty(self, model: ContinualModel, task: int, *, generator: Generator) -> Tensor | None:
        return self.replay.penalty(model, task, generator=generator)

    def after_task(self, model: ContinualModel, task: int, data: TaskData) -> None:
        if task not in self.pending:
            self.replay.after_task(model, task, data)
            return
        self.uses[task] += 1
        self.pending.discard(task)
        if not self.pending:
            self._close()

    def updates(self) -> int:
        """How many updates there have been, counted by task."""
        return sum(self.uses.values())

    def tensors(self) -> dict[str, Tensor]:
        if self.learned is None:
            return self.replay.tensors()
        return {f"{LEARNED}{name}": tensor for name, tensor in self.learned.state_dict().items()}

    def restore(self, model: ContinualModel, task: int, tensors: dict[str, Tensor]) -> None:
        """Remember again what a checkpoint holds; of updates only those of all tasks together can be continued."""
        self._close()
        stored = {name.removeprefix(LEARNED): tensor for name, tensor in tensors.items() if name.startswith(LEARNED)}
        if not stored:
            self.replay.restore(model, task, tensors)
            return
        learned = deepcopy(model.task_map)
        learned.load_state_dict(stored)
        self._open(model, range(model.num_tasks), learned)

    def memory(self) -> dict[str, Tensor]:
        kept = self.replay.memory()
        for task, coreset in self.coresets.items():
            kept |= {f"coreset.{task}.x": coreset.x, f"coreset.{task}.y": coreset.y, f"coreset.{task}.uses": torch.tensor(self.uses[task])}
        return kept

    def recall(self, memory: dict[str, Tensor]) -> None:
        self._close()
        self.replay.recall(memory)
        tasks = sorted(int(name.split(".")[1]) for name in memory if name.endswith(".uses"))
        self.coresets = {task: TaskData(memory[f"coreset.{task}.x"], memory[f"coreset.{task}.y"]) for task in tasks}
        self.uses = {task: int(memory[f"coreset.{task}.uses"]) for task in tasks}

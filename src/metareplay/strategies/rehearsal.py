"""Experience replay: rehearse a few stored inputs of old tasks, with the old model's predictions as targets.

[Henning2021, SM sec. Experience Replay]
"""

from collections.abc import Mapping
from typing import ClassVar, final

import torch
from pydantic import Field
from torch import Generator, Tensor

from metareplay.benchmarks.base import TaskData
from metareplay.errors import ConfigError
from metareplay.model import ContinualModel
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.seeding import generator_for
from metareplay.settings import Settings
from metareplay.strategies.base import (
    QuietStrategy,
    StrategyPart,
    current_state,
    of_current,
    register_strategy,
)

CORESET = "coreset."
"""Prefix of the names of stored inputs."""


class RehearsalSettings(Settings):
    """What is kept, and how much of it a step replays."""

    group: ClassVar[str] = "strategy"
    strength: float = Field(1.0, ge=0, description="weight of the distillation penalty")
    coreset_size: int = Field(100, ge=1, description="number of random inputs of each task that are kept for later")
    replay_batch_size: int = Field(
        16, ge=1, description="number of stored inputs replayed in a step, split equally over old tasks"
    )
    replay_batch_per_task: bool = Field(
        False,
        description="replay_batch_size inputs of each old task instead of in total: the batch grows with the tasks",
    )
    temperature: float = Field(
        1.0, gt=0, description="temperature at which predictions are distilled; the loss is multiplied by its square"
    )
    sum_over_tasks: bool = Field(
        False,
        description="the loss of each old task is the mean over its replayed inputs, drawn with replacement, and these "
        "are summed, as in the published runs; false: the mean over all replayed inputs",
    )


@final
class ExperienceReplay(QuietStrategy):
    """Keep a random coreset of each task's inputs, and distil the model from before the task into the current one.

    The penalty of a step is strength * 1/B * sum over B coreset inputs x of H(p*(y | x), p(y | x)): the mean
    cross-entropy of the current model's predictions relative to the checkpoint's, over all old tasks together or over
    each of them (``sum_over_tasks``). Classes that the checkpoint did not know have probability zero under p*.
    """

    keeps_revised = True

    def __init__(self, settings: RehearsalSettings, prior: GaussianPrior, *, seed: int) -> None:
        super().__init__(prior)
        self.settings, self.seed = settings, seed
        self.coresets: dict[int, Tensor] = {}
        """Inputs of each task, (M, ...) with M at most ``coreset_size``; no targets."""
        self.checkpoint: Tensor | None = None
        """theta as it was before the task (P,)."""
        self.teacher: list[Tensor] = []
        """The checkpoint's outputs for each old task's coreset, (M, C) with C the outputs known then."""

    def data_for(self, task: int, data: TaskData) -> TaskData:
        order = torch.randperm(len(data.x), generator=generator_for(self.seed, "coreset", task))
        chosen = order[: self.settings.coreset_size]  # the same whenever a run is resumed; (M,)
        self.coresets[task] = data.x[chosen]  # (N, ...) -> (M, ...)
        return data

    def before_task(self, model: ContinualModel, task: int) -> None:
        self.checkpoint, self.teacher = None, []
        if task == 0 or self.settings.strength == 0:
            return
        available = sum(old in self.coresets for old in range(task))
        if available < task:
            raise ConfigError(
                f"experience replay in task {task} needs the coresets of all {task} earlier tasks, "
                f"but only {available} are available; learn the tasks again, or choose a method such as pr-bbb"
            )
        self._keep(model, task, model.task_map.theta(task - 1).detach().clone())

    def before_revision(self, model: ContinualModel, task: int, *, resumed: bool) -> None:
        """All tasks are replayed, the revised one too."""
        checkpoint = self.checkpoint if resumed else model.task_map.theta(task).detach().clone()
        if checkpoint is not None and self.settings.strength > 0:
            self._keep(model, model.num_tasks, checkpoint)

    def _keep(self, model: ContinualModel, task: int, checkpoint: Tensor) -> None:
        """Evaluate the checkpoint once on all coresets: it does not change during the task."""
        known = max(head.stop for head in model.heads[:task])
        posterior, unused = model.family.at(checkpoint, model.spec), generator_for(self.seed, "distillation", task)
        with torch.no_grad():
            runs = (model.run(posterior, self.coresets[old], 1, task - 1, generator=unused) for old in range(task))
            self.teacher = [outputs[0, :, :known] for outputs in runs]  # (1, M, C) -> (M, known)
        self.checkpoint = checkpoint

    def penalty(self, model: ContinualModel, task: int, *, generator: Generator) -> Tensor | None:
        if self.checkpoint is None:
            return None
        inputs, targets = [], []
        for old, share in enumerate(self.shares(len(self.teacher), generator=generator)):
            chosen = self._chosen(len(self.coresets[old]), share, generator)
            inputs.append(self.coresets[old][chosen])
            targets.append(self.teacher[old][chosen])
        x, posterior, temperature = torch.cat(inputs), model.posterior(task), self.settings.temperature
        outputs = model.run(posterior, x, 1, task, generator=generator, train=True)
        outputs = outputs[..., model.training_columns(task, auxiliary=False)]  # (1, B, C)
        distil = model.likelihood.distillation  # SM sec. Experience Replay
        if not self.settings.sum_over_tasks:
            return self.settings.strength * distil(outputs, torch.cat(targets), temperature)
        of_tasks = outputs.split([len(wanted) for wanted in targets], dim=1)  # (1, B, C) -> T times (1, b, C)
        losses = [distil(new, old, temperature) for new, old in zip(of_tasks, targets, strict=True) if len(old)]
        return self.settings.strength * torch.stack(losses).sum()

    def _chosen(self, size: int, share: int, generator: Generator) -> Tensor:
        """Rows of a coreset: (share,)."""
        if self.settings.sum_over_tasks:
            return torch.randint(size, (share,), generator=generator)
        order = torch.randperm(size, generator=generator)
        return order[torch.arange(share) % size]  # repeated only after all have been used

    def shares(self, task: int, *, generator: Generator) -> list[int]:
        """The number of inputs replayed from each old task's coreset: equal shares, the remainder to random tasks."""
        if self.settings.replay_batch_per_task:
            return [self.settings.replay_batch_size] * task
        share, remainder = divmod(self.settings.replay_batch_size, task)
        with_extra = torch.randperm(task, generator=generator)[:remainder].tolist()
        return [share + (old in with_extra) for old in range(task)]

    def after_task(self, model: ContinualModel, task: int, data: TaskData) -> None:
        self.checkpoint, self.teacher = None, []

    def state(self) -> dict[str, Tensor]:
        coresets = {f"{CORESET}{task}": inputs for task, inputs in self.coresets.items()}
        return coresets | ({} if self.checkpoint is None else current_state({"checkpoint": self.checkpoint}))

    def load_state(self, model: ContinualModel, state: Mapping[str, Tensor]) -> None:
        self.checkpoint, self.teacher = None, []
        names = {name: int(name.removeprefix(CORESET)) for name in state if name.startswith(CORESET)}
        self.coresets = {task: state[name] for name, task in names.items()}
        checkpoint = of_current(state).get("checkpoint")
        if checkpoint is not None:
            self._keep(model, model.num_tasks - 1, checkpoint.to(model.device))


register_strategy(
    StrategyPart(
        name="rehearsal",
        phrase="experience replay",
        settings=(RehearsalSettings,),
        build=lambda parts, context: ExperienceReplay(parts.get(RehearsalSettings), context.prior, seed=context.seed),
    )
)

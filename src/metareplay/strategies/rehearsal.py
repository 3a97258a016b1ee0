"""Experience replay: rehearse a few kept inputs of old tasks, with what the model said about them as targets.

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
"""How the names of kept inputs begin."""


class RehearsalSettings(Settings):
    """What is kept, and how much of it a step replays."""

    group: ClassVar[str] = "strategy"
    strength: float = Field(1.0, ge=0, description="weight of the penalty: of the distillation")
    coreset_size: int = Field(100, ge=1, description="how many random inputs of each task are kept for later")
    replay_batch_size: int = Field(
        16, ge=1, description="how many kept inputs are replayed in a step, equally many of each old task"
    )
    replay_batch_per_task: bool = Field(
        False,
        description="replay_batch_size inputs of every old task instead of all old tasks together: the batch grows with the tasks",
    )


@final
class ExperienceReplay(QuietStrategy):
    """Keep a random coreset of each task's inputs, and distil the model from before the task into the one that learns it.

    The penalty of a step is strength * 1/B * sum over B coreset inputs x of H(p*(y | x), p(y | x)): the mean cross-entropy from the
    checkpointed model's prediction to the present one. Classes that the checkpoint did not know have probability zero under p*.
    """

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
        self.coresets[task] = data.x[
            order[: self.settings.coreset_size]
        ]  # the same inputs whenever a run is resumed; (M, ...)
        return data

    def before_task(self, model: ContinualModel, task: int) -> None:
        self.checkpoint, self.teacher = None, []
        if task == 0 or self.settings.strength == 0:
            return
        at_hand = sum(old in self.coresets for old in range(task))
        if at_hand < task:
            raise ConfigError(
                f"experience replay in task {task} needs the coresets of all {task} earlier tasks, but only {at_hand} are at hand"
                "; learn the tasks again, or choose a method that needs no old data, e.g. pr-bbb"
            )
        self._keep(model, task, model.task_map.theta(task - 1).detach().clone())

    def _keep(self, model: ContinualModel, task: int, checkpoint: Tensor) -> None:
        """Ask the checkpoint once about all coresets: it does not change during the task."""
        known = max(head.stop for head in model.heads[:task])
        posterior, unused = model.family.at(checkpoint, model.spec), generator_for(self.seed, "distillation", task)
        with torch.no_grad():
            everything = [
                model.run(posterior, self.coresets[old], 1, task - 1, generator=unused) for old in range(task)
            ]  # (1, M, C)
        self.teacher = [outputs[0, :, :known] for outputs in everything]
        self.checkpoint = checkpoint

    def penalty(self, model: ContinualModel, task: int, *, generator: Generator) -> Tensor | None:
        if self.checkpoint is None:
            return None
        inputs, targets = [], []
        for old, share in enumerate(self.shares(task, generator=generator)):
            size = len(self.coresets[old])
            chosen = torch.randperm(size, generator=generator)[
                torch.arange(share) % size
            ]  # repeated only once all were taken
            inputs.append(self.coresets[old][chosen])
            targets.append(self.teacher[old][chosen])
        outputs = model.run(
            model.posterior(task), torch.cat(inputs), 1, task, generator=generator, train=True
        )  # (1, B, C)
        return self.settings.strength * model.likelihood.distillation(
            outputs, torch.cat(targets)
        )  # SM sec. Experience Replay

    def shares(self, task: int, *, generator: Generator) -> list[int]:
        """How many inputs of each old task's coreset a step replays: equally many; what is left over goes to random tasks."""
        if self.settings.replay_batch_per_task:
            return [self.settings.replay_batch_size] * task
        least, left_over = divmod(self.settings.replay_batch_size, task)
        lucky = torch.randperm(task, generator=generator)[:left_over].tolist()
        return [least + (old in lucky) for old in range(task)]

    def after_task(self, model: ContinualModel, task: int, data: TaskData) -> None:
        self.checkpoint, self.teacher = None, []

    def state(self) -> dict[str, Tensor]:
        coresets = {f"{CORESET}{task}": inputs for task, inputs in self.coresets.items()}
        return coresets | ({} if self.checkpoint is None else current_state({"checkpoint": self.checkpoint}))

    def load_state(self, model: ContinualModel, state: Mapping[str, Tensor]) -> None:
        self.checkpoint, self.teacher = None, []
        kept = {name.removeprefix(CORESET): inputs for name, inputs in state.items() if name.startswith(CORESET)}
        self.coresets = {int(task): inputs for task, inputs in kept.items()}
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

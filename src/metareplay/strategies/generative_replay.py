"""Generative replay: inputs of old tasks come from a model that learns to generate them, not from a memory.

Deep generative replay [Shin2017] as van de Ven and Tolias describe it [vandeVen2019]: while task t is learned, the
new examples count 1/t and generated inputs 1 - 1/t. Generated inputs are labelled by the classifier as it was before
the task,
with soft targets at a temperature; the generator learns from its own samples in the same proportion.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol, final, runtime_checkable

import torch
from pydantic import Field
from torch import Generator, Tensor

from metareplay.batches.base import Batch
from metareplay.benchmarks.base import TaskData
from metareplay.errors import ConfigError
from metareplay.model import ContinualModel
from metareplay.posteriors.base import Prior
from metareplay.settings import Composition, Settings
from metareplay.strategies.base import (
    CURRENT,
    QuietStrategy,
    StepChange,
    Strategy,
    StrategyContext,
    StrategyPart,
    part_of_state,
    register_strategy,
    state_of_part,
)
from metareplay.strategies.replay_models import Replay, ReplayModel, ReplayModelSettings, SelfReplay

MODEL = "generator."
"""Prefix of the names of the replay model's state."""


class ReplayedTargetsSettings(Settings):
    """How generated inputs are labelled."""

    group: ClassVar[str] = "strategy"
    temperature: float = Field(2.0, gt=0, description="divisor of the outputs before the softmax, on both sides")


class SelfReplaySettings(ReplayModelSettings):
    """Generative replay by one autoencoder."""

    gates: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of the decoder's hidden units that are switched off, different ones for each class; 0: no "
        "gates",
    )


@runtime_checkable
class GeneratesInputs(Protocol):
    """A strategy that can show what it would replay."""

    def generated(self, model: ContinualModel, count: int, *, generator: Generator) -> Tensor:
        """Inputs like those of all tasks so far (count, D)."""
        ...


@final
class GenerativeReplay(QuietStrategy):
    """Trains a model of the inputs alongside the classifier, and replays from it."""

    sees_steps = True
    keeps_revised = True

    def __init__(self, model: ReplayModel, prior: Prior, *, temperature: float) -> None:
        super().__init__(prior)
        self.replay_model, self.temperature = model, temperature
        self.examples, self.replayed_tasks = 0, 0
        """Examples that the loss is scaled to, and tasks that are replayed."""
        self.checkpoint: Tensor | None = None
        """theta as it was before the task (P,)."""
        self.begun = False
        self.drawn: Replay | None = None
        """What this step replays."""
        self.shape: torch.Size | None = None

    def before_task(self, model: ContinualModel, task: int) -> None:
        self._hold(model, task, model.task_map.theta(task))

    def before_revision(self, model: ContinualModel, task: int, *, resumed: bool) -> None:
        if not resumed:
            self._hold(model, model.num_tasks, model.task_map.theta(task))

    def _hold(self, model: ContinualModel, tasks: int, theta: Tensor) -> None:
        """Remember the classifier; this many tasks will be replayed."""
        self.replayed_tasks, self.begun, self.drawn = tasks, False, None
        self.checkpoint = theta.detach().clone() if tasks > 0 else None

    def data_for(self, task: int, data: TaskData) -> TaskData:
        self.examples = len(data.x)
        return data

    def _begin(self, model: ContinualModel, x: Tensor) -> None:
        """The first batch of a task, or of a revision, has come: its inputs are known."""
        binary = bool((x >= 0).all() and (x <= 1).all())
        self.replay_model.begin(self.replayed_tasks, x[0].numel(), binary=binary, device=model.device)
        self.begun = True

    @property
    def share(self) -> float:
        """What the new examples count: 1/t."""
        return 1 / (self.replayed_tasks + 1)

    def batches_for(self, model: ContinualModel, task: int, batch: Batch, *, generator: Generator) -> Sequence[Batch]:
        if not self.begun:
            self._begin(model, batch.x)
        if self.checkpoint is None:
            return (batch,)
        self.drawn = self.replay_model.replay(len(batch.x), self._known(model), generator=generator)
        self.shape = batch.x.shape[1:]
        return (batch._replace(weight=self.share * batch.weight),)

    def _known(self, model: ContinualModel) -> int:
        """Outputs that the classifier had before the task."""
        return max(head.stop for head in model.heads[: self.replayed_tasks])

    def penalty(self, model: ContinualModel, task: int, *, generator: Generator) -> Tensor | None:
        if self.checkpoint is None or self.drawn is None or self.shape is None:
            return None
        x, temperature = self.drawn.x.reshape(-1, *self.shape), self.temperature
        with torch.no_grad():
            before, last = model.family.at(self.checkpoint, model.spec), self.replayed_tasks - 1
            teacher = model.run(before, x, 1, last, generator=generator)[0, :, : self._known(model)]  # (B, C')
        outputs = model.run(model.posterior(task), x, 1, task, generator=generator, train=True)  # (1, B, C)
        outputs = outputs[..., model.training_columns(task, auxiliary=False)]
        loss = model.likelihood.distillation(outputs / temperature, teacher / temperature)
        return self.examples * (1 - self.share) * temperature**2 * loss  # gradients as large as those of labels

    def after_step(self, model: ContinualModel, task: int, step: StepChange, *, generator: Generator) -> None:
        batch = step.batches[0]
        if not self.begun:
            self._begin(model, batch.x)
        x, y = batch.x.to(model.device).flatten(1), batch.y.to(model.device)  # (B, ...) -> (B, D)
        self.replay_model.learn(x, y, self.drawn, self.share, generator=generator)
        self.drawn = None

    def after_task(self, model: ContinualModel, task: int, data: TaskData) -> None:
        self.replay_model.end()
        self.checkpoint, self.drawn, self.begun = None, None, False

    def generated(self, model: ContinualModel, count: int, *, generator: Generator) -> Tensor:
        return self.replay_model.replay(count, model.heads[-1].stop, generator=generator).x.cpu()

    def state(self) -> dict[str, Tensor]:
        stored = state_of_part(MODEL, self.replay_model.state())
        if stored:
            stored["examples"] = torch.tensor(self.examples)
        if self.checkpoint is not None:
            stored[f"{CURRENT}checkpoint"] = self.checkpoint
        if self.begun or self.checkpoint is not None:
            stored[f"{CURRENT}task"] = torch.tensor([self.replayed_tasks, self.begun])
        return stored

    def load_state(self, model: ContinualModel, state: Mapping[str, Tensor]) -> None:
        self.replay_model.load_state(part_of_state(MODEL, state), model.device)
        checkpoint, self.drawn = state.get(f"{CURRENT}checkpoint"), None
        self.checkpoint = None if checkpoint is None else checkpoint.to(model.device)
        self.examples = int(state.get("examples", 0))
        self.replayed_tasks, begun = (int(number) for number in state.get(f"{CURRENT}task", torch.zeros(2)))
        self.begun = bool(begun)


def _build_self_replay(parts: Composition, context: StrategyContext) -> Strategy:
    settings = parts.get(SelfReplaySettings)
    if settings.gates and context.problem == "regression":
        raise ConfigError("strategy.gates switches units by the class of an input, but regression has none; remove it")
    model = SelfReplay(settings, context.seed, settings.gates)
    return GenerativeReplay(model, context.prior, temperature=parts.get(ReplayedTargetsSettings).temperature)


register_strategy(
    StrategyPart(
        name="generative-replay",
        phrase="replay from an autoencoder",
        settings=(SelfReplaySettings, ReplayedTargetsSettings),
        build=_build_self_replay,
    )
)

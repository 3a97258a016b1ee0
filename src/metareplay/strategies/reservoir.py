"""Replay of labelled examples from a reservoir: experience replay (ER), and dark experience replay (DER++).

After each task its examples enter the reservoir, so that at any time every example seen so far is in it with the same
probability [Vitter1985]. Steps learn from the new examples and from random ones of the reservoir [Chaudhry2019]; DER++
also holds the outputs that the network had for them when their task ended [Buzzega2020].
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, final

import torch
from pydantic import Field
from torch import Generator, Tensor

from metareplay.batches.base import Batch
from metareplay.benchmarks.base import TaskData
from metareplay.model import ContinualModel
from metareplay.posteriors.base import Prior
from metareplay.seeding import generator_for
from metareplay.settings import Settings
from metareplay.strategies.base import QuietStrategy, StrategyPart, register_strategy

MEMORY = ("x", "y", "outputs", "widths", "seen")
AT_ONCE = 500
"""Examples whose outputs are computed together."""


class ReservoirSettings(Settings):
    """What is kept, and how much of it a step replays."""

    group: ClassVar[str] = "strategy"
    memory_size: int = Field(500, ge=1, description="number of labelled examples kept, from all tasks together")
    replay_batch_size: int = Field(32, ge=1, description="number of kept examples replayed in a step")
    strength: float = Field(1.0, ge=0, description="weight of the loss of replayed examples")


class DarkSettings(ReservoirSettings):
    """The same, with outputs."""

    output_strength: float = Field(
        0.5, ge=0, description="weight of the squared distance to the stored outputs of kept examples: alpha"
    )


@final
class Reservoir(QuietStrategy):
    """Keeps labelled examples of all tasks, and mixes some of them into every step."""

    keeps_revised = True

    def __init__(self, settings: ReservoirSettings, prior: Prior, *, seed: int) -> None:
        super().__init__(prior)
        self.settings, self.seed = settings, seed
        self.dark = settings.output_strength if isinstance(settings, DarkSettings) else 0.0
        self.x: Tensor | None = None
        """Kept inputs (M, ...)."""
        self.y: Tensor | None = None
        """Their targets: columns of the one softmax (M,), or real ones (M, D)."""
        self.outputs: Tensor | None = None
        """Their outputs when their task ended (M, C); zero for outputs that came later."""
        self.widths: Tensor | None = None
        """How many outputs there were then (M,)."""
        self.seen = 0
        self.examples = 0
        """Of the task being learned; 0 between tasks."""

    def data_for(self, task: int, data: TaskData) -> TaskData:
        self.examples = len(data.x)
        return data

    def batches_for(self, model: ContinualModel, task: int, batch: Batch, *, generator: Generator) -> Sequence[Batch]:
        if self.x is None or self.y is None or self.settings.strength == 0:
            return (batch,)
        rows = self._drawn(generator)
        return (batch, Batch(self.x[rows], self.y[rows], self.settings.strength))

    def penalty(self, model: ContinualModel, task: int, *, generator: Generator) -> Tensor | None:
        if self.dark == 0 or self.examples == 0 or self.x is None or self.outputs is None or self.widths is None:
            return None
        rows = self._drawn(generator)
        wanted = self.outputs[rows].to(model.device)  # (B, C')
        posterior = model.posterior(task)
        outputs = model.run(posterior, self.x[rows], 1, task, generator=generator, train=True)[0]  # (1, B, C) -> (B, C)
        known = torch.arange(wanted.shape[1]) < self.widths[rows].unsqueeze(1)  # (B, C')
        known = known.to(model.device)
        squares = (outputs[:, : wanted.shape[1]] - wanted).square()  # (B, C')
        mean = (squares * known).sum() / known.sum().clamp_min(1)  # alpha |z - h(x)|^2, [Buzzega2020, eq. 6]
        return self.examples * self.dark * mean  # scaled to the whole training set, as the data term is

    def _drawn(self, generator: Generator) -> Tensor:
        """Random rows of the memory (B,)."""
        size = len(self.x) if self.x is not None else 0
        return torch.randperm(size, generator=generator)[: self.settings.replay_batch_size]

    def after_task(self, model: ContinualModel, task: int, data: TaskData) -> None:
        size, count = self.settings.memory_size, len(data.x)
        generator = generator_for(self.seed, "reservoir", task)
        numbers = torch.arange(self.seen, self.seen + count)  # of each example among all, from 0; (N,)
        places = (torch.rand(count, generator=generator, dtype=torch.float64) * (numbers + 1)).long()
        places = torch.where(numbers < size, numbers, places)  # the first fill it up; (N,)
        latest = dict(zip(places.tolist(), range(count), strict=True))  # a later example replaces an earlier one
        chosen = {place: row for place, row in latest.items() if place < size}
        self.seen, self.examples = self.seen + count, 0
        if not chosen:
            return
        spots, rows = torch.tensor(list(chosen)), torch.tensor(list(chosen.values()))
        self.x = _placed(self.x, spots, data.x[rows])
        self.y = _placed(self.y, spots, data.y[rows])
        if self.dark:
            outputs = self._outputs_of(model, task, data.x[rows])
            self.outputs = _placed(self.outputs, spots, outputs)
            self.widths = _placed(self.widths, spots, torch.full((len(rows),), outputs.shape[1]))

    def _outputs_of(self, model: ContinualModel, task: int, x: Tensor) -> Tensor:
        """The network's outputs for inputs, (N, ...) -> (N, C)."""
        posterior, unused = model.posterior(task), generator_for(self.seed, "outputs", task)
        parts = [model.run(posterior, part, 1, task, generator=unused)[0].cpu() for part in x.split(AT_ONCE)]
        return torch.cat(parts)[:, : model.heads[-1].stop]

    def state(self) -> dict[str, Tensor]:
        if self.x is None or self.y is None:
            return {}
        dark = (("outputs", self.outputs), ("widths", self.widths))
        outputs = {name: tensor for name, tensor in dark if tensor is not None}
        return {"x": self.x, "y": self.y, **outputs, "seen": torch.tensor([self.seen, self.examples])}

    def load_state(self, model: ContinualModel, state: Mapping[str, Tensor]) -> None:
        self.x, self.y, self.outputs, self.widths, seen = (state.get(name) for name in MEMORY)
        self.seen, self.examples = (0, 0) if seen is None else (int(number) for number in seen)


def _placed(kept: Tensor | None, spots: Tensor, new: Tensor) -> Tensor:
    """Rows put in their places (M, ...); columns that earlier rows do not have are zero."""
    size = max(int(spots.max()) + 1, 0 if kept is None else len(kept))
    grown = new.new_zeros(size, *new.shape[1:])
    if kept is not None:
        if kept.dim() == 2 and kept.shape[1] < new.shape[1]:
            missing = kept.new_zeros(len(kept), new.shape[1] - kept.shape[1])
            kept = torch.cat([kept, missing], dim=1)  # (M, C') -> (M, C)
        grown[: len(kept)] = kept
    grown[spots] = new
    return grown


register_strategy(
    StrategyPart(
        name="reservoir",
        phrase="labelled replay from a reservoir",
        settings=(ReservoirSettings,),
        build=lambda parts, context: Reservoir(parts.get(ReservoirSettings), context.prior, seed=context.seed),
    )
)
register_strategy(
    StrategyPart(
        name="dark-reservoir",
        phrase="labelled replay from a reservoir, with outputs",
        settings=(DarkSettings,),
        build=lambda parts, context: Reservoir(parts.get(DarkSettings), context.prior, seed=context.seed),
    )
)

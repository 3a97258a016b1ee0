"""Energy-based models: an input's own label competes with one other label of its batch, and no other changes [Li2020].

A softmax over all classes pushes down the outputs of every label that is not in the batch, and so those of all earlier
tasks. Here the energy of an input and its label competes with that of a single negative label, drawn from the labels of
the batch.
"""

from collections.abc import Sequence
from typing import ClassVar, final

import torch
from pydantic import Field
from torch import Generator, Tensor

from metareplay.batches.base import Batch
from metareplay.errors import ConfigError
from metareplay.model import ContinualModel
from metareplay.nets.energy import is_energy, with_labels
from metareplay.posteriors.base import Prior
from metareplay.settings import Composition, Settings
from metareplay.strategies.base import QuietStrategy, StrategyPart, register_strategy


class ContrastSettings(Settings):
    """What an input's own label competes with."""

    group: ClassVar[str] = "strategy"
    negatives: int = Field(1, ge=1, description="labels of the batch that compete with an example's own in a step")

    def check(self, composition: Composition) -> None:
        """Energies of single labels need a special kind of network."""
        network = composition.parts()["network"].phrase
        if not is_energy(network):
            raise ConfigError(
                f"{composition.method_name} needs the energies of an input with single labels, which {network} does "
                "not compute; choose a network such as energy-100-100"
            )


@final
class Contrast(QuietStrategy):
    """Names in each step which labels compete; the network computes only their energies."""

    def __init__(self, settings: ContrastSettings, prior: Prior) -> None:
        super().__init__(prior)
        self.settings = settings

    def batches_for(self, model: ContinualModel, task: int, batch: Batch, *, generator: Generator) -> Sequence[Batch]:
        columns = model.training_columns(task)
        count = min(self.settings.negatives, columns.stop - columns.start - 1)
        negatives = drawn_negatives(batch.y, count, columns.stop - columns.start, generator=generator)  # (B, K)
        labels = torch.cat([batch.y.unsqueeze(1), negatives], dim=1)  # the true label is the first; (B, 1 + K)
        # -log(exp(-E(x, y)) / sum of exp(-E(x, y')) over y and its negatives) [Li2020]
        return (Batch(with_labels(batch.x, labels), torch.zeros_like(batch.y), batch.weight),)


def drawn_negatives(y: Tensor, count: int, known: int, *, generator: Generator) -> Tensor:
    """For each label (B,) others that occur in the batch, each as probable as any other: (B, count).

    In a batch of a single label there is no other: then all that are ``known`` compete.
    """
    labels, places = y.unique(return_inverse=True)  # (U,), (B,)
    if len(labels) == 1:
        labels, places = torch.arange(known), y
    steps = torch.randint(1, max(len(labels), 2), (len(y), count), generator=generator)  # (B, count)
    return labels[(places.unsqueeze(1) + steps) % len(labels)]


register_strategy(
    StrategyPart(
        name="contrast",
        phrase="contrast with single labels of the batch",
        settings=(ContrastSettings,),
        build=lambda parts, context: Contrast(parts.get(ContrastSettings), context.prior),
    )
)

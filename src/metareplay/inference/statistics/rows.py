"""The evidence of some inputs, or of several sets of inputs together."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from metareplay.inference.statistics.evidence import TaskEvidence


def part_of(evidence: TaskEvidence, rows: slice) -> TaskEvidence:
    """The evidence of some of the inputs."""

    def by_layer(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {layer: part[..., rows] for layer, part in values.items()}

    return TaskEvidence(
        inputs=evidence.inputs[:, rows],
        residuals=evidence.residuals[:, rows],
        entropies=evidence.entropies[:, rows],
        energies=evidence.energies[:, rows],
        margins=evidence.margins[:, rows],
        own=by_layer(evidence.own),
        pooled=by_layer(evidence.pooled),
        nearest=by_layer(evidence.nearest),
        relative=by_layer(evidence.relative),
        classes=evidence.classes,
        lone=evidence.lone,
    )


def joined(parts: Sequence[TaskEvidence]) -> TaskEvidence:
    """The evidence of several sets of inputs, one after another."""

    def plain(values: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(values), dim=-1)

    def by_layer(values: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        return {layer: plain([part[layer] for part in values]) for layer in values[0]}

    return TaskEvidence(
        inputs=plain([part.inputs for part in parts]),
        residuals=plain([part.residuals for part in parts]),
        entropies=plain([part.entropies for part in parts]),
        energies=plain([part.energies for part in parts]),
        margins=plain([part.margins for part in parts]),
        own=by_layer([part.own for part in parts]),
        pooled=by_layer([part.pooled for part in parts]),
        nearest=by_layer([part.nearest for part in parts]),
        relative=by_layer([part.relative for part in parts]),
        classes=parts[0].classes,
        lone=parts[0].lone,
    )

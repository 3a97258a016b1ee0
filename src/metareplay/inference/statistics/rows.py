"""Rows of examples: the evidence of some of them or of several sets together, folds, classes that are not too rare."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from metareplay.inference.statistics.density import InputDensity
from metareplay.inference.statistics.edges import drawn_numbers
from metareplay.inference.statistics.evidence import Stored, TaskEvidence

FOLDS = 5
"""Where no inputs are held out, each part of the data is compared with what describes the others."""
MOST_FOLDS, FOLDED = 20, 4000
"""Into how many parts few inputs are divided for thresholds: densities of much fewer inputs would be too narrow. More
inputs are divided into fewer parts, such that all densities together are taken from as many inputs."""
CALIBRATION_WORK = 20_000
"""The most comparisons of a held-out input with a task when a task ends, unless there are very many tasks."""
NUMBERS_AT_ONCE = 2**15
"""Of drawn inputs, each of which takes some Gaussian's directions."""
FEWEST_PER_CLASS = 5
"""Classes with fewer examples are not described by themselves."""


def part_of(evidence: TaskEvidence, rows: slice | Tensor) -> TaskEvidence:
    """The evidence of some of the inputs."""

    def by_layer(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {layer: part[..., rows] for layer, part in values.items()}

    return TaskEvidence(
        inputs=evidence.inputs[:, rows],
        residuals=evidence.residuals[:, rows],
        edges=None if evidence.edges is None else evidence.edges[:, rows],
        entropies=evidence.entropies[:, rows],
        energies=evidence.energies[:, rows],
        margins=evidence.margins[:, rows],
        other=None if evidence.other is None else evidence.other[:, rows],
        own=by_layer(evidence.own),
        pooled=by_layer(evidence.pooled),
        nearest=by_layer(evidence.nearest),
        relative=by_layer(evidence.relative),
        classes=evidence.classes,
        outputs=evidence.outputs,
        lone=evidence.lone,
    )


def by_task(evidence: TaskEvidence, tasks: Sequence[int]) -> dict[int, TaskEvidence]:
    """The evidence of each of these tasks' inputs, of which each has as many as the others, one task after another."""
    count = evidence.inputs.shape[1] // max(len(tasks), 1)
    return {task: part_of(evidence, slice(row * count, (row + 1) * count)) for row, task in enumerate(tasks)}


def joined(parts: Sequence[TaskEvidence]) -> TaskEvidence:
    """The evidence of several sets of inputs, one after another."""

    def plain(values: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(values), dim=-1)

    def by_layer(values: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        return {layer: plain([part[layer] for part in values]) for layer in values[0]}

    return TaskEvidence(
        inputs=plain([part.inputs for part in parts]),
        residuals=plain([part.residuals for part in parts]),
        edges=plain([part.edges for part in parts if part.edges is not None]) if parts[0].edges is not None else None,
        entropies=plain([part.entropies for part in parts]),
        energies=plain([part.energies for part in parts]),
        margins=plain([part.margins for part in parts]),
        other=plain([part.other for part in parts if part.other is not None]) if parts[0].other is not None else None,
        own=by_layer([part.own for part in parts]),
        pooled=by_layer([part.pooled for part in parts]),
        nearest=by_layer([part.nearest for part in parts]),
        relative=by_layer([part.relative for part in parts]),
        classes=parts[0].classes,
        outputs=parts[0].outputs,
        lone=parts[0].lone,
    )


def own_scales(task: int, evidence: TaskEvidence) -> dict[str, Tensor]:
    """Mean and standard deviation of a task's own distances, by which they are standardised."""
    scales: dict[str, Tensor] = {}
    for kind, by_layer in (("nearest", evidence.nearest), ("relative", evidence.relative)):
        for layer, values in by_layer.items():
            own = values[task]
            deviation = own.std() if len(own) > 1 else torch.ones((), dtype=torch.float64)
            scales[f"{kind}.{layer}"] = torch.stack([own.mean(), deviation.clamp_min(1e-9)])
    return scales


class Drawn(NamedTuple):
    """Inputs that were drawn from the densities of tasks, or are compared together with such."""

    x: Tensor
    """(n, ...)"""
    edges: Tensor | None = None
    """Descriptions of edges (n, S), drawn from their own densities; None where there are none."""

    @classmethod
    def together(cls, parts: Sequence["Drawn"]) -> "Drawn":
        """Several in a row; NaN for missing edges, unless all are missing."""
        found = [part.edges for part in parts if part.edges is not None]
        x = torch.cat([part.x for part in parts])
        if not found:
            return cls(x)
        missing = found[0].new_full((1, found[0].shape[1]), torch.nan)
        edges = [missing.expand(len(part.x), -1) if part.edges is None else part.edges for part in parts]
        return cls(x, torch.cat(edges))


def drawn_inputs(stored: Stored, count: int, shape: torch.Size, generator: Generator) -> Drawn:
    """Inputs drawn from a task's density; of wide ones a few at a time."""
    density, size = InputDensity.stored(stored), max(1, NUMBERS_AT_ONCE // max(shape.numel(), 1))
    drawn = [density.draw(min(size, count - start), generator=generator) for start in range(0, count, size)]
    return Drawn(torch.cat(drawn).float().reshape(-1, *shape), drawn_numbers(stored, count, generator))


def common_labels(labels: Tensor) -> Tensor:
    """Class indices (N,), in which very rare classes join the most frequent one: a mean must not be an example."""
    counts = torch.bincount(labels)
    rare = counts < FEWEST_PER_CLASS
    return torch.where(rare[labels], counts.argmax(), labels)


def folds(count: int) -> int:
    """The number of parts of as many inputs; fewer for very few."""
    return min(FOLDS, max(2, count // 20))


def finer_folds(count: int) -> int:
    """The number of parts of as many inputs for thresholds."""
    return max(min(MOST_FOLDS, FOLDED // max(count, 1), count), folds(count))


def left_out(count: int, parts: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Indices of each part of as many inputs, and which of the others (count,) it is compared with."""
    for fold in torch.randperm(count, generator=generator).chunk(parts):
        rest = torch.ones(count, dtype=torch.bool)
        rest[fold] = False
        if len(fold) and rest.any():
            yield fold, rest


def bounded(tasks: int) -> int:
    """Held-out inputs that are compared with this many tasks: the work per task does not grow with their number."""
    return max(100, CALIBRATION_WORK // max(tasks, 1))

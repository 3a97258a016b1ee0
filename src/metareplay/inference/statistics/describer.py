"""What is stored about a task: the density of its inputs, and moments of its features."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from metareplay.benchmarks.base import TaskData
from metareplay.inference.statistics.density import input_density
from metareplay.inference.statistics.edges import (
    EdgeScale,
    bytes_of_moments,
    described_edges,
    described_parts,
    moments_of_edges,
    scale_of,
)
from metareplay.inference.statistics.evidence import Stored, TaskEvidence, space_name, spaces_of
from metareplay.inference.statistics.few_columns import density_of_rows, group_counts
from metareplay.inference.statistics.moments import MomentSums
from metareplay.inference.statistics.passes import EDGES, in_parts, total_bytes
from metareplay.inference.statistics.reader import StatisticsReader
from metareplay.inference.statistics.rows import finer_folds, joined, left_out

PART = 500


class InputForm(NamedTuple):
    """How the inputs of a task are described, which is decided from all of them."""

    groups: Mapping[int, int] | None = None
    """Into how many groups each class of inputs of few columns is divided; None for other inputs."""
    edges: EdgeScale | None = None
    """With which the edges of images are described; None for other inputs."""


class StatisticsDescriber(StatisticsReader):
    """Describes the inputs of a task while they are there."""

    def _form(self, x: Tensor, labels: Tensor, earlier: Sequence[Stored]) -> InputForm:
        """Of a new task's inputs; images are described as those of earlier tasks are."""
        classes, features = int(labels.max()) + 1, x[0].numel()
        if not self.settings.few_columns(features):
            return InputForm(edges=scale_of(x, earlier, self.settings))
        most = self.settings.density_size(classes, features)[0]
        return InputForm(group_counts(partial(in_parts, x, labels, 4 * PART), classes, most))

    def _described(self, task: int, x: Tensor, labels: Tensor, form: InputForm) -> dict[str, Tensor]:
        """Densities of a task's inputs and edges, and moments of its features in its own and the first networks."""
        labels = self._told_apart(x, labels)
        stored, allowed, classes = self._densities(x, labels, form), self._spaces(task), int(labels.max()) + 1
        for network in sorted(
            {network for network, layer in allowed if layer != EDGES} | ({task} if self._is_home(task) else set())
        ):
            sums: dict[str, MomentSums] = {}
            weights = self.model.central_weights(network)
            for part, of_part in in_parts(x, labels, 4 * PART):
                for layer, values in self._pass(network, part, True, weights=weights).features.items():
                    if (network, layer) not in allowed and not (network == task and self._is_home(task)):
                        continue
                    sums.setdefault(layer, MomentSums(classes)).add(values, of_part)
            for layer, layer_sums in sums.items():
                stored |= layer_sums.moments().tensors(space_name(network, layer))
        return stored

    def _told_apart(self, x: Tensor, labels: Tensor) -> Tensor:
        """The same labels, or a single one if there are too many classes for separate densities."""
        directions = self.settings.density_size(int(labels.max()) + 1, x[0].numel())[1]
        return labels if directions else torch.zeros_like(labels)

    def _densities(self, x: Tensor, labels: Tensor, form: InputForm) -> dict[str, Tensor]:
        """Of a task's inputs and their edges; and the numbers of examples."""
        labels = self._told_apart(x, labels)
        classes, features = int(labels.max()) + 1, x[0].numel()
        components, directions = self.settings.density_size(classes, features)
        parts = partial(in_parts, x, labels, 4 * PART)
        if form.groups is None:
            stored = input_density(parts, classes, max(directions, 1), components).tensors()
        else:
            stored = density_of_rows(parts, classes, form.groups).tensors()
        if form.edges is not None:
            stored |= self._edges(x, labels, form.edges, used=total_bytes(list(stored.values())))
        counts = torch.bincount(labels).double()
        present = counts.nonzero().squeeze(1)
        return {**stored, "classes": present, "class_counts": counts[present], "examples": torch.tensor(len(x))}

    def _left_out(
        self,
        task: int,
        data: TaskData,
        form: InputForm,
        described: Stored,
        order: Generator,
        whole: Callable[[Stored], Stored],
    ) -> TaskEvidence:
        """Evidence on the inputs that a task was described by, as if it were the only task.

        Each part of them is compared with densities of the others, which ``whole`` completes.
        """
        (x, labels), parts = data, []
        for fold, rest in left_out(len(x), finer_folds(len(x)), order):
            others = whole(self._densities(x[rest], labels[rest], form))
            parts.append(self._evidence_alone(others, task, x[fold]))
        return joined(parts) if parts else self._evidence_alone(described, task, x)

    def _edges(self, x: Tensor, labels: Tensor, scale: EdgeScale, *, used: int) -> dict[str, Tensor]:
        """The density of the edges of images, within what is left of the permitted size, and their moments."""
        numbers, of_moments = described_parts(x, scale), bytes_of_moments(scale, x)
        stored = described_edges(numbers, labels, scale, self.settings, used=used + of_moments)
        return stored | moments_of_edges(numbers, labels).tensors(space_name(0, EDGES))

    def _spaces(self, task: int) -> set[tuple[int, str]]:
        """The networks and layers in which a task is described, besides its own network."""
        stored = self.stored()
        return set(spaces_of(stored[task] if task < len(stored) else stored[-1])) if stored else set()

    def _is_home(self, task: int) -> bool:
        """Whether a new task's own network becomes one of those in which later tasks are described."""
        return task >= len(self.stored()) and task < self.settings.networks

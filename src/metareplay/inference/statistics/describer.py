"""What is stored about a task: the density of its inputs, and moments of its features."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from metareplay.inference.statistics.density import input_density
from metareplay.inference.statistics.edges import (
    EdgeScale,
    bytes_of_moments,
    described_edges,
    described_parts,
    moments_of_edges,
    scale_of,
)
from metareplay.inference.statistics.evidence import Stored, space_name, spaces_of
from metareplay.inference.statistics.few_columns import density_of_rows, group_counts
from metareplay.inference.statistics.moments import MomentSums
from metareplay.inference.statistics.passes import EDGES, in_parts, total_bytes
from metareplay.inference.statistics.reader import StatisticsReader

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
        classes, features = int(labels.max()) + 1, x[0].numel()
        components, directions = self.settings.density_size(classes, features)
        if directions == 0:  # too many classes for separate densities
            labels, classes = torch.zeros_like(labels), 1
            components, directions = self.settings.density_size(classes, features)
        parts = partial(in_parts, x, labels, 4 * PART)
        if form.groups is None:
            stored = input_density(parts, classes, max(directions, 1), components).tensors()
        else:
            stored = density_of_rows(parts, classes, form.groups).tensors()
        if form.edges is not None:
            stored |= self._edges(x, labels, form.edges, used=total_bytes(list(stored.values())))
        allowed = self._spaces(task)
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
        counts = torch.bincount(labels).double()
        present = counts.nonzero().squeeze(1)
        return {**stored, "classes": present, "class_counts": counts[present], "examples": torch.tensor(len(x))}

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

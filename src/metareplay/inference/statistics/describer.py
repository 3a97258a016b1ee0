"""What is stored about a task: the density of its inputs, and moments of its features."""

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from metareplay.inference.statistics.density import input_density
from metareplay.inference.statistics.edges import bytes_of_inputs, described_edges
from metareplay.inference.statistics.evidence import space_name, spaces_of
from metareplay.inference.statistics.few_columns import density_of_rows, group_counts
from metareplay.inference.statistics.moments import MomentSums
from metareplay.inference.statistics.passes import in_parts
from metareplay.inference.statistics.reader import StatisticsReader

PART = 500


class StatisticsDescriber(StatisticsReader):
    """Describes the inputs of a task while they are there."""

    def _groups(self, x: Tensor, labels: Tensor) -> dict[int, int] | None:
        """Into how many groups each class of inputs of few columns is divided; None for other inputs."""
        classes, features = int(labels.max()) + 1, x[0].numel()
        if not self.settings.few_columns(features):
            return None
        return group_counts(
            partial(in_parts, x, labels, 4 * PART), classes, self.settings.density_size(classes, features)[0]
        )

    def _described(
        self, task: int, x: Tensor, labels: Tensor, groups: Mapping[int, int] | None = None
    ) -> dict[str, Tensor]:
        """Densities of a task's inputs, and moments of its features in its own and the first networks.

        Not of the edges of images, which tell known from unknown, not tasks.
        """
        classes, features = int(labels.max()) + 1, x[0].numel()
        components, directions = self.settings.density_size(classes, features)
        if directions == 0:  # too many classes for separate densities
            labels, classes = torch.zeros_like(labels), 1
            components, directions = self.settings.density_size(classes, features)
        parts = partial(in_parts, x, labels, 4 * PART)
        if groups is None:
            stored = input_density(parts, classes, max(directions, 1), components).tensors()
        else:
            stored = density_of_rows(parts, classes, groups).tensors()
        allowed = self._spaces(task)
        for network in sorted({network for network, _ in allowed} | ({task} if self._is_home(task) else set())):
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

    def _edges(
        self, x: Tensor, labels: Tensor, described: Mapping[str, Tensor], floor: Tensor | None = None
    ) -> dict[str, Tensor]:
        """The density of the edges of images, within what the description of the inputs leaves of the size."""
        return described_edges(x, labels, self.settings, used=bytes_of_inputs(described), floor=floor)

    def _spaces(self, task: int) -> set[tuple[int, str]]:
        """The networks and layers in which a task is described, besides its own network."""
        stored = self.stored()
        return set(spaces_of(stored[task] if task < len(stored) else stored[-1])) if stored else set()

    def _is_home(self, task: int) -> bool:
        """Whether a new task's own network becomes one of those in which later tasks are described."""
        return task >= len(self.stored()) and task < self.settings.networks

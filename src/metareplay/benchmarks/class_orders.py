"""The order in which tasks take the classes of a split data set.

What makes an order hard is which classes share a task. Classes of one task are learned together; those of different
tasks never meet, so an order is harder if the classes of different tasks are more similar. Classes are similar if their
mean training inputs are close to each other: cheap to compute, without a network or a label of the test set.
"""

import torch
from torch import Tensor

from metareplay.benchmarks.settings import ClassOrder
from metareplay.data.base import LabelledImages
from metareplay.errors import ConfigError
from metareplay.seeding import generator_for

CANDIDATES = 1000
"""Orders that are drawn, of which the hardest, the median or the easiest is taken."""


def ordered(name: str, images: LabelledImages, order: ClassOrder, seed: int, classes_per_task: int) -> Tensor:
    """All classes in the order in which tasks take them: (C,)."""
    known = images.train_y.unique()  # sorted
    if order == "ascending":
        return known
    if order == "seeded":
        return known[torch.randperm(len(known), generator=generator_for(seed, "class order"))]
    if isinstance(order, str):
        means = class_means(images.train_x, images.train_y)
        return known[by_difficulty(means, classes_per_task, seed)[order]]
    if sorted(order) != known.tolist():
        raise ConfigError(f"{name}: class_order must list each of the classes {known.tolist()} once, got {list(order)}")
    return torch.tensor(order)


def class_means(x: Tensor, y: Tensor) -> Tensor:
    """The mean input of each class, in ascending order of the classes: (N, ...) -> (C, D)."""
    return torch.stack([x[y == label].flatten(1).double().mean(0) for label in y.unique()])  # (C, D)


def by_difficulty(means: Tensor, classes_per_task: int, seed: int) -> dict[str, Tensor]:
    """The hardest, the median and the easiest of many random orders, as positions of the classes: (C,) each."""
    distances, generator = torch.cdist(means, means), generator_for(seed, "class orders")
    orders = torch.stack([torch.randperm(len(means), generator=generator) for _ in range(CANDIDATES)])  # (n, C)
    task = torch.arange(len(means)) // classes_per_task
    apart = task.unsqueeze(0) != task.unsqueeze(1)  # pairs of classes that never meet; (C, C)
    between = torch.stack([distances[order][:, order][apart].mean() for order in orders]).nan_to_num(0.0)  # (n,)
    ranks = between.argsort(stable=True)  # the closest classes of different tasks first
    places = {"hardest": 0, "median": len(ranks) // 2, "easiest": len(ranks) - 1}
    return {name: orders[ranks[place]] for name, place in places.items()}

"""Spaces: a layer of one network, in which tasks are described by the moments of their features."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from metareplay.inference.statistics.moments import LEAST_SHRINKAGE, Moments, with_sphere

LEAST_SHARE = 0.01
"""Every task varies in every direction by at least this share of what is typical of the space: features of a task may
have collapsed to almost a point."""
AT_ONCE = 2**18
"""Differences of features and means that are held at once."""


@dataclass(frozen=True)
class Gaussian:
    """Class means with a shared covariance, ready to be compared with features."""

    factor: Tensor
    """Whitens features: x -> x A; (F, F)."""
    means: Tensor
    """Whitened (C, F)."""
    log_volume: float
    """Half the log-determinant of the covariance."""

    @classmethod
    def of(cls, mean: Tensor, covariance: Tensor) -> "Gaussian":
        """With a covariance that is not singular."""
        lower = torch.linalg.cholesky(covariance)  # C = L L'
        factor = torch.linalg.solve_triangular(lower, torch.eye(len(lower), dtype=lower.dtype), upper=False).T
        volume = float(lower.diagonal().log().sum())
        return cls(factor.float().contiguous(), (mean @ factor).float(), volume)

    def distances(self, features: Tensor) -> Tensor:
        """Half the squared Mahalanobis distance to every class mean: (N, F) -> (N, C)."""
        white = features.float() @ self.factor  # (N, F)
        return 0.5 * squared_distances(white, self.means)


def squared_distances(x: Tensor, means: Tensor) -> Tensor:
    """(N, F), (C, F) -> (N, C), in float64."""
    size = max(1, AT_ONCE // max(x.numel(), 1))
    parts = [(x.unsqueeze(1) - part).square().sum(2, dtype=torch.float64) for part in means.split(size)]  # (N, c, F)
    return torch.cat(parts, dim=1)


@dataclass(frozen=True)
class Space:
    """A layer of one network, with the tasks described there."""

    network: int
    layer: str
    tasks: range
    described: Sequence[Moments]
    """Of these tasks."""
    floor: Tensor
    """What is added to every covariance (F, F)."""
    pooled: Gaussian
    """The class means of all tasks with the covariance that all tasks share."""
    classes: Sequence[slice]
    """Each task's means among them."""

    @classmethod
    def of(cls, network: int, layer: str, described: Sequence[Moments]) -> "Space":
        """From the moments of the tasks from ``network`` on."""
        total = sum(moments.count for moments in described)
        shared = sum(
            (moments.count / total * moments.covariance for moments in described),
            start=torch.zeros_like(described[0].covariance),
        )
        means = torch.cat([moments.mean for moments in described])  # (C of all tasks, F)
        typical = float(shared.diagonal().mean() + means.var(0, correction=0).mean())
        floor = LEAST_SHARE * max(typical, 1e-12) * torch.eye(len(shared), dtype=shared.dtype)
        stops = torch.tensor([len(moments.mean) for moments in described]).cumsum(0).tolist()
        return cls(
            network,
            layer,
            range(network, network + len(described)),
            described,
            floor,
            Gaussian.of(means, with_sphere(shared, LEAST_SHRINKAGE) + floor),
            [slice(start, stop) for start, stop in zip([0, *stops], stops, strict=False)],
        )

    def own(self, task: int) -> Gaussian:
        """A task with its own covariance."""
        moments = self.described[task - self.network]
        return Gaussian.of(moments.mean, moments.shrunk() + self.floor)

    def background(self, task: int) -> Gaussian:
        """A task without its classes: one mean and the covariance of all its examples."""
        moments = self.described[task - self.network]
        centred = moments.mean - moments.mean.mean(0)
        between = centred.T @ centred / len(centred)  # (C, F) -> (F, F)
        covariance = with_sphere(moments.shrunk() + between, LEAST_SHRINKAGE) + self.floor
        return Gaussian.of(moments.mean.mean(0, keepdim=True), covariance)

    def compare(self, features: Tensor, own: Tensor | None, pooled: Tensor) -> None:
        """Write the costs of the tasks described here (T, N)."""
        to_all = self.pooled.distances(features)  # (N, C of all tasks)
        for task, classes in zip(self.tasks, self.classes, strict=True):
            pooled[task] = -(-to_all[:, classes]).logsumexp(1)  # (N, C) -> (N,)
            if own is not None:
                gaussian = self.own(task)
                own[task] = gaussian.log_volume - (-gaussian.distances(features)).logsumexp(1)  # (N, C) -> (N,)

    def compare_together(self, features: Tensor, own: Tensor | None, pooled: Tensor) -> None:
        """The same, many tasks in one operation."""
        to_all = self.pooled.distances(features)  # (N, C of all tasks)
        for group in self.groups:
            columns = to_all[:, group.columns].unflatten(1, (len(group.tasks), -1))  # (N, t, C)
            pooled[group.tasks] = -(-columns).logsumexp(2).T  # (N, t) -> (t, N)
            if own is None:
                continue
            factor, means, volume = group.own
            size = max(1, AT_ONCE // max(len(features) * means.shape[1:].numel(), 1))
            for rows in torch.arange(len(group.tasks)).split(size):
                white = features.float() @ factor[rows]  # (N, F) -> (t, N, F)
                apart = white.unsqueeze(2) - means[rows].unsqueeze(1)  # (t, N, C, F)
                costs = 0.5 * apart.square().sum(3, dtype=torch.float64)  # (t, N, C)
                own[group.tasks[rows]] = volume[rows].unsqueeze(1) - (-costs).logsumexp(2)  # (t, N)

    @cached_property
    def groups(self) -> "list[Group]":
        """Tasks with as many classes as each other."""
        sizes = torch.tensor([classes.stop - classes.start for classes in self.classes])
        return [Group(self, (sizes == size).nonzero().squeeze(1) + self.network) for size in sizes.unique()]


@dataclass(frozen=True)
class Group:
    """Some tasks of a space that have equally many classes, to be compared with features together."""

    space: Space
    tasks: Tensor
    """(t,)"""

    @cached_property
    def columns(self) -> Tensor:
        """The places of their classes among those of all tasks, one task after another."""
        slices = [self.space.classes[task - self.space.network] for task in self.tasks.tolist()]
        return torch.cat([torch.arange(each.start, each.stop) for each in slices])

    @cached_property
    def own(self) -> tuple[Tensor, Tensor, Tensor]:
        """Of the tasks with their own covariances: factors (t, F, F), whitened means (t, C, F), log-volumes (t,)."""
        described = [self.space.described[task - self.space.network] for task in self.tasks.tolist()]
        lower = torch.linalg.cholesky(torch.stack([moments.shrunk() for moments in described]) + self.space.floor)
        identity = torch.eye(lower.shape[1], dtype=lower.dtype).expand_as(lower)
        factor = torch.linalg.solve_triangular(lower, identity, upper=False).mT  # (t, F, F)
        means = torch.stack([moments.mean for moments in described]) @ factor  # (t, C, F)
        return factor.float().contiguous(), means.float(), lower.diagonal(dim1=1, dim2=2).log().sum(1)


def homes(space: Space, spaces: Sequence[Space]) -> list[int]:
    """The tasks whose home is this network: its own, and for the last one with this layer all later ones."""
    last = max(other.network for other in spaces if other.layer == space.layer)
    return list(space.tasks) if space.network == last else [space.network]

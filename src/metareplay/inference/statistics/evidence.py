"""Evidence: how well inputs fit each task, by the task's stored statistics and by its network's outputs.

Every quantity is a cost, lower for a better fit: (T, N), or (K, T, N) where it is taken in the networks of the first K
tasks. In network k only the tasks from k on are described; the costs of others are NaN.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from metareplay.inference.statistics.density import InputDensity
from metareplay.inference.statistics.moments import LEAST_SHRINKAGE, Moments, with_sphere
from metareplay.inference.statistics.passes import INPUTS, Pass

Stored = Mapping[str, Tensor]
LEAST_SHARE = 0.01
"""Every task varies in every direction by at least this share of what is typical of the space: features of a task may
have collapsed to almost a point."""
RunNetwork = Callable[[int, Tensor, bool], Pass]
"""The pass of some inputs through a task's network; features of its layers only if asked for."""


def space_name(network: int, layer: str) -> str:
    """The prefix of what is stored about a task in a layer of a network."""
    return f"network{network}.{layer}"


def spaces_of(stored: Stored) -> list[tuple[int, str]]:
    """The networks and layers in which a task is described."""
    names = [key.removesuffix(".covariance") for key in stored if key.endswith(".covariance")]
    parts = [name.removeprefix("network").partition(".") for name in names]
    return [(int(network), layer) for network, _, layer in parts]


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
    return torch.stack([(x - mean).square().sum(1, dtype=torch.float64) for mean in means], dim=1)


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


@dataclass(frozen=True)
class Descriptions:
    """What is stored about all tasks, ready to be compared with inputs."""

    inputs: Sequence[InputDensity]
    spaces: Sequence[Space]

    @classmethod
    def of(cls, stored: Sequence[Stored], layers: Sequence[str] = ()) -> "Descriptions":
        """Of all tasks, in order; ``layers`` in theirs, since files do not keep the order of what they hold."""
        named = spaces_of(stored[-1]) if stored else []  # the last task is described in all of them
        position = {layer: index for index, layer in enumerate([INPUTS, *layers])}
        named.sort(key=lambda space: (space[0], position.get(space[1], len(position))))
        spaces = [
            Space.of(k, layer, [Moments.stored(task, space_name(k, layer)) for task in stored[k:]])
            for k, layer in named
        ]
        return cls([InputDensity.stored(task) for task in stored], spaces)


@dataclass(frozen=True, kw_only=True)
class TaskEvidence:
    """The costs of assigning inputs to tasks."""

    inputs: Tensor
    """-log p(x) of the input densities (T, N)."""
    residuals: Tensor
    """Log squared distance to the nearest class's principal subspace (T, N)."""
    entropies: Tensor
    """Of the predicted classes under the central weights (T, N); zero for regression."""
    energies: Tensor
    """-log sum exp of the outputs (T, N); zero for regression."""
    margins: Tensor
    """-(largest output - second) (T, N); zero for regression."""
    own: Mapping[str, Tensor] = field(default_factory=dict)
    """-log p(inputs) up to a constant, with each task's own covariance, if inputs are narrow (K, T, N).

    Not of features: their covariances suffer most from drift, and always speak for the newest task."""
    pooled: Mapping[str, Tensor] = field(default_factory=dict)
    """-log p(features) up to a constant, with the covariance that all tasks in a space share, by layer (K, T, N)."""
    nearest: Mapping[str, Tensor] = field(default_factory=dict)
    """Half the squared Mahalanobis distance to the nearest class, in the task's home network (T, N)."""
    relative: Mapping[str, Tensor] = field(default_factory=dict)
    """The same, minus the distance to the task as a whole."""
    classes: bool = True
    """Whether the outputs are classes, not regression targets."""
    outputs: bool = True
    """Whether tasks are compared by their outputs, if these are classes."""
    lone: tuple[int, ...] = ()
    """Tasks with a single class, of which their networks are certain for every input."""

    @property
    def num_tasks(self) -> int:
        """The number of tasks."""
        return len(self.inputs)

    def _of_several(self, costs: Tensor) -> Tensor:
        """Costs (T, N) of outputs, NaN for tasks with a single class: they are no evidence for or against these."""
        return costs.index_fill(0, torch.tensor(self.lone), torch.nan) if self.lone else costs

    def terms(self) -> dict[str, Tensor]:
        """Everything that tasks are compared by, by name: (K, T, N) each."""
        terms = {"inputs": self.inputs, "residuals": self.residuals}
        if self.classes and self.outputs:
            terms |= {"entropy": self._of_several(self.entropies), "energy": self._of_several(self.energies)}
        named = {name: values.unsqueeze(0) for name, values in terms.items()}  # (T, N) -> (1, T, N)
        of_layers = {f"own {layer}": values for layer, values in self.own.items()}
        return {**named, **of_layers, **{f"pooled {layer}": values for layer, values in self.pooled.items()}}


def gather(
    descriptions: Descriptions,
    x: Tensor,
    heads: Sequence[slice],
    run: RunNetwork,
    *,
    classes: bool,
    outputs: bool = True,
    distances: Collection[int] = (),
) -> TaskEvidence:
    """Compare inputs with all tasks; needs one forward pass per task. ``nearest`` and ``relative`` only where asked."""
    tasks, count = len(descriptions.inputs), x.shape[0]
    input_costs, residuals = zip(*(density.costs(x) for density in descriptions.inputs), strict=True)
    networks = {space.network for space in descriptions.spaces}
    layers = list(dict.fromkeys(space.layer for space in descriptions.spaces))
    empty = torch.full((len(networks), tasks, count), torch.nan, dtype=torch.float64)  # (K, T, N)
    own = {layer: empty.clone() for layer in layers if layer == INPUTS}
    pooled = {layer: empty.clone() for layer in layers}
    measured = layers if distances else []
    nearest = {layer: torch.zeros(tasks, count, dtype=torch.float64) for layer in measured}
    relative = {layer: torch.zeros(tasks, count, dtype=torch.float64) for layer in measured}
    of_outputs = torch.zeros(3, tasks, count, dtype=torch.float64)
    for task, head in enumerate(heads):
        if not (classes or task in networks):
            continue
        run_of_task = run(task, x, task in networks)
        if classes:
            of_outputs[:, task] = output_costs(run_of_task.outputs[:, head])
        for space in (space for space in descriptions.spaces if space.network == task):
            features = run_of_task.features[space.layer]
            own_costs = own[space.layer][task] if space.layer in own else None
            _compare(space, features, own_costs, pooled[space.layer][task])
            for home in (task for task in _homes(space, descriptions.spaces) if task in distances):
                to_classes = space.own(home).distances(features).amin(1)  # (N, C) -> (N,)
                nearest[space.layer][home] = to_classes
                relative[space.layer][home] = to_classes - space.background(home).distances(features)[:, 0]
    entropies, energies, margins = of_outputs
    return TaskEvidence(
        inputs=torch.stack(input_costs),
        residuals=torch.stack(residuals),
        entropies=entropies,
        energies=energies,
        margins=margins,
        own=own,
        pooled=pooled,
        nearest=nearest,
        relative=relative,
        classes=classes,
        outputs=outputs,
        lone=lone_tasks(heads) if classes else (),
    )


def lone_tasks(heads: Sequence[slice]) -> tuple[int, ...]:
    """The tasks with a single output."""
    return tuple(task for task, head in enumerate(heads) if head.stop - head.start == 1)


def _homes(space: Space, spaces: Sequence[Space]) -> list[int]:
    """The tasks whose home is this network: its own, and for the last one with this layer all later ones."""
    last = max(other.network for other in spaces if other.layer == space.layer)
    return list(space.tasks) if space.network == last else [space.network]


def _compare(space: Space, features: Tensor, own: Tensor | None, pooled: Tensor) -> None:
    """Write the costs of the tasks described in a space (T, N)."""
    to_all = space.pooled.distances(features)  # (N, C of all tasks)
    for task, classes in zip(space.tasks, space.classes, strict=True):
        pooled[task] = -(-to_all[:, classes]).logsumexp(1)  # (N, C) -> (N,)
        if own is not None:
            gaussian = space.own(task)
            own[task] = gaussian.log_volume - (-gaussian.distances(features)).logsumexp(1)  # (N, C) -> (N,)


def output_costs(outputs: Tensor) -> Tensor:
    """Entropy, energy and margin of one task's outputs: (N, C) -> (3, N)."""
    log_probs = outputs.double().log_softmax(1)
    entropy = -(log_probs.exp() * log_probs).sum(1)  # (N, C) -> (N,)
    energy = -outputs.double().logsumexp(1)  # (N, C) -> (N,)
    if outputs.shape[1] < 2:
        return torch.stack([entropy, energy, -outputs[:, 0].double()])
    first, second = outputs.double().topk(2, dim=1).values.unbind(1)
    return torch.stack([entropy, energy, second - first])

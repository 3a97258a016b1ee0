"""Evidence: how well inputs fit each task, by the task's stored statistics and by its network's outputs.

Every quantity is a cost, lower for a better fit: (T, N), or (K, T, N) where it is taken in the networks of the first K
tasks. In network k only the tasks from k on are described; the costs of others are NaN.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from metareplay.inference.statistics.density import InputDensity, costs_together
from metareplay.inference.statistics.edges import EdgeDensities
from metareplay.inference.statistics.moments import Moments
from metareplay.inference.statistics.passes import EDGES, FIXED, INPUTS, Pass
from metareplay.inference.statistics.spaces import Space, homes

Stored = Mapping[str, Tensor]
OF_OUTPUTS = ("entropy", "energy", "other")
"""Evidence for which every task's own network has to be asked."""
OUTPUT_COSTS = 4
"""Entropy, energy, margin, and the log-odds of auxiliary outputs."""
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
class Descriptions:
    """What is stored about all tasks, ready to be compared with inputs."""

    inputs: Sequence[InputDensity]
    spaces: Sequence[Space]
    edges: EdgeDensities | None = None
    """Of images."""

    @classmethod
    def of(cls, stored: Sequence[Stored], layers: Sequence[str] = ()) -> "Descriptions":
        """Of all tasks, in order; ``layers`` in theirs, since files do not keep the order of what they hold."""
        named = spaces_of(stored[-1]) if stored else []  # the last task is described in all of them
        position = {layer: index for index, layer in enumerate([INPUTS, *layers])}
        named.sort(key=lambda space: (space[0], space[1] == EDGES, position.get(space[1], len(position))))
        spaces = [
            Space.of(k, layer, [Moments.stored(task, space_name(k, layer)) for task in stored[k:]])
            for k, layer in named
        ]
        return cls([InputDensity.stored(task) for task in stored], spaces, EdgeDensities.stored(stored))


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
    edges: Tensor | None = None
    """-log p of the edges of images (T, N), NaN for tasks without a density of them; None for other inputs."""
    other: Tensor | None = None
    """Log-odds of each task's auxiliary outputs (T, N); None if tasks are trained without."""
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
    first: Tensor | None = None
    """A score of each task by what needs no network of its own (T, N), where there are many tasks."""
    listed: Tensor | None = None
    """The tasks that are short-listed by it for each input (M, N), in order; None: all. Costs of outputs may be NaN
    for others."""

    @property
    def num_tasks(self) -> int:
        """The number of tasks."""
        return len(self.inputs)

    def numel(self) -> int:
        """The number of costs."""
        layers = (self.own, self.pooled, self.nearest, self.relative)
        return 6 * self.inputs.numel() + sum(costs.numel() for each in layers for costs in each.values())

    def _of_several(self, costs: Tensor) -> Tensor:
        """Costs (T, N) of outputs, NaN for tasks with a single class: they say nothing for or against these."""
        return costs.index_fill(0, torch.tensor(self.lone), torch.nan) if self.lone else costs

    def _of_learned(self, layer: str, costs: Tensor) -> Tensor:
        """Costs (K, T, N) of features, NaN in networks with a single class: these learned nothing from inputs."""
        networks = [network for network in self.lone if network < len(costs)]
        return costs if layer in FIXED or not networks else costs.index_fill(0, torch.tensor(networks), torch.nan)

    def terms(self) -> dict[str, Tensor]:
        """Everything that tasks are compared by, by name: (K, T, N) each."""
        terms = {"inputs": self.inputs, "residuals": self.residuals}
        if self.edges is not None:
            terms["edges"] = self.edges
        if self.classes and self.outputs:
            terms |= {"entropy": self._of_several(self.entropies), "energy": self._of_several(self.energies)}
            if self.other is not None:
                terms["other"] = self.other
        named = {name: values.unsqueeze(0) for name, values in terms.items()}  # (T, N) -> (1, T, N)
        of_layers = {f"own {layer}": values for layer, values in self.own.items()}
        pooled = {f"pooled {layer}": self._of_learned(layer, values) for layer, values in self.pooled.items()}
        return {**named, **of_layers, **pooled}


def gather(
    descriptions: Descriptions,
    x: Tensor,
    heads: Sequence[slice],
    run: RunNetwork,
    *,
    classes: bool,
    by_outputs: bool = True,
    auxiliary: bool = False,
    distances: Collection[int] = (),
    outputs: bool = True,
    together: bool = False,
    edges: Tensor | None = None,
) -> TaskEvidence:
    """Compare inputs with all tasks; needs one forward pass per task. ``nearest`` and ``relative`` only where asked.

    Without ``by_outputs``, the outputs do not count as evidence; with ``auxiliary``, auxiliary outputs do.
    Without ``outputs``, only one in each network whose features are described; costs of other tasks' outputs are NaN.
    ``together`` is faster with many tasks, and differs by rounding. ``edges``: their description (N, S), if known.
    """
    tasks, count = len(descriptions.inputs), x.shape[0]
    numbers = edges
    if descriptions.edges is not None and numbers is None:
        numbers = descriptions.edges.scale.numbers(x)  # (N, S)
    if together:
        input_costs, residuals = costs_together(descriptions.inputs, x)  # (T, N) each
    else:
        alone = zip(*(density.costs(x) for density in descriptions.inputs), strict=True)
        input_costs, residuals = map(torch.stack, alone)
    networks = {space.network for space in descriptions.spaces}
    layers = list(dict.fromkeys(space.layer for space in descriptions.spaces))
    empty = torch.full((len(networks), tasks, count), torch.nan, dtype=torch.float64)  # (K, T, N)
    own = {layer: empty.clone() for layer in layers if layer == INPUTS}
    pooled = {layer: empty.clone() for layer in layers}
    measured = layers if distances else []
    nearest = {layer: torch.zeros(tasks, count, dtype=torch.float64) for layer in measured}
    relative = {layer: torch.zeros(tasks, count, dtype=torch.float64) for layer in measured}
    of_outputs = torch.full((OUTPUT_COSTS, tasks, count), torch.nan if classes else 0.0, dtype=torch.float64)
    for task, head in enumerate(heads):
        if not ((classes and outputs) or task in networks):
            continue
        run_of_task = run(task, x, task in networks)
        if classes:
            of_outputs[:, task] = costs_of(run_of_task, head)
        for space in (space for space in descriptions.spaces if space.network == task):
            features = numbers if space.layer == EDGES else run_of_task.features[space.layer]
            assert features is not None
            own_costs = own[space.layer][task] if space.layer in own else None
            (space.compare_together if together else space.compare)(features, own_costs, pooled[space.layer][task])
            for home in (task for task in homes(space, descriptions.spaces) if task in distances):
                to_classes = space.own(home).distances(features).amin(1)  # (N, C) -> (N,)
                nearest[space.layer][home] = to_classes
                relative[space.layer][home] = to_classes - space.background(home).distances(features)[:, 0]
    entropies, energies, margins, other = of_outputs
    return TaskEvidence(
        inputs=input_costs,
        residuals=residuals,
        edges=None if descriptions.edges is None or numbers is None else descriptions.edges.costs(numbers),
        entropies=entropies,
        energies=energies,
        margins=margins,
        other=other if auxiliary else None,
        own=own,
        pooled=pooled,
        nearest=nearest,
        relative=relative,
        classes=classes,
        outputs=by_outputs,
        lone=lone_tasks(heads) if classes else (),
    )


def with_outputs(
    evidence: TaskEvidence, asked: Tensor, x: Tensor, heads: Sequence[slice], run: RunNetwork
) -> TaskEvidence:
    """With the costs of some tasks' outputs (M, N) for each input, where they are missing."""
    missing = torch.zeros_like(evidence.entropies, dtype=torch.bool).scatter_(0, asked, True)
    missing &= evidence.entropies.isnan()  # (T, N)
    if not missing.any():
        return evidence
    other = torch.full_like(evidence.entropies, torch.nan) if evidence.other is None else evidence.other
    costs = torch.stack([evidence.entropies, evidence.energies, evidence.margins, other])  # (4, T, N)
    for task in missing.any(1).nonzero().squeeze(1).tolist():
        rows = missing[task].nonzero().squeeze(1)
        costs[:, task, rows] = costs_of(run(task, x[rows], False), heads[task])
    entropies, energies, margins, other = costs
    auxiliary = None if evidence.other is None else other
    return replace(evidence, entropies=entropies, energies=energies, margins=margins, other=auxiliary)


def lone_tasks(heads: Sequence[slice]) -> tuple[int, ...]:
    """The tasks with a single output."""
    return tuple(task for task, head in enumerate(heads) if head.stop - head.start == 1)


def costs_of(run: Pass, head: slice) -> Tensor:
    """``output_costs`` of one task's classes, and the log-odds of its auxiliary outputs, NaN without: (4, N)."""
    costs = output_costs(run.outputs[:, head])  # (3, N)
    other = torch.full_like(costs[0], torch.nan) if run.other is None else run.other
    return torch.cat([costs, other.unsqueeze(0)])


def output_costs(outputs: Tensor) -> Tensor:
    """Entropy, energy and margin of one task's outputs: (N, C) -> (3, N)."""
    log_probs = outputs.double().log_softmax(1)
    entropy = -(log_probs.exp() * log_probs).sum(1)  # (N, C) -> (N,)
    energy = -outputs.double().logsumexp(1)  # (N, C) -> (N,)
    if outputs.shape[1] < 2:
        return torch.stack([entropy, energy, -outputs[:, 0].double()])
    first, second = outputs.double().topk(2, dim=1).values.unbind(1)
    return torch.stack([entropy, energy, second - first])

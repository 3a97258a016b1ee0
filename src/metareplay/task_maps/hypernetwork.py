"""Task-conditioned hypernetworks: theta = f_TC(e, psi) [Henning2021, sec. 3, SM sec. Task-conditioned hypernetworks].

A hypernetwork is an MLP that maps rows of inputs to rows of outputs. The plain one has a single row per task, its
embedding; the chunked one (chunked.py) has a row per chunk. It does not know what its outputs mean.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import cast, final

import torch
from torch import Generator, Tensor, nn

from metareplay.column_blocks import ColumnBlocks
from metareplay.limits import refuse_layers
from metareplay.nets.activations import activation_named
from metareplay.task_maps.base import Start, TaskMap
from metareplay.task_maps.initialise import activation_second_moment, match_output_variances


class BlankLinear(nn.Linear):
    """A linear layer that draws nothing when it is made; `skip_init` does the same, but imports sympy first."""

    def reset_parameters(self) -> None:
        """Leave the values to the code that creates the layer."""


def xavier_linear(n_in: int, n_out: int, generator: Generator) -> nn.Linear:
    """A linear layer with Xavier-uniform weights and zero biases."""
    layer = BlankLinear(n_in, n_out)
    nn.init.xavier_uniform_(layer.weight, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer


def without(parameters: nn.ParameterList, index: int) -> nn.ParameterList:
    """The list without one entry."""
    return nn.ParameterList([entry for position, entry in enumerate(parameters) if position != index])


class Hypernetwork(TaskMap):
    """What plain and chunked hypernetworks share: hidden layers, a linear output layer, task embeddings."""

    def __init__(
        self,
        num_outputs: int,
        *,
        input_size: int,
        row_size: int,
        hidden: Sequence[int],
        activation: str,
        task_embedding_size: int,
        task_embedding_std: float,
        generator: Generator,
    ) -> None:
        super().__init__()
        self.num_outputs, self.num_tasks = num_outputs, 0
        self.task_embedding_size, self.task_embedding_std = task_embedding_size, task_embedding_std
        self.activation = activation_named(activation)
        refuse_layers((input_size, *hidden, row_size), "the hypernetwork")
        self.hidden_layers = nn.ModuleList([xavier_linear(a, b, generator) for a, b in pairwise((input_size, *hidden))])
        self.output_layer = xavier_linear((input_size, *hidden)[-1], row_size, generator)
        self.task_embeddings = nn.ParameterList()
        self.slots: Tensor | None
        self.register_buffer("slots", None)  # theta position -> output slot, once the outputs have grown
        self._order: tuple[Tensor, int, ColumnBlocks] | None = (
            None  # slots, their version, and the blocks made from them
        )

    @abstractmethod
    def rows(self, tasks: Sequence[int]) -> Tensor:
        """Inputs of the hypernetwork: (T, L, D) for L rows per task."""

    @abstractmethod
    def input_second_moment(self) -> float:
        """Mean square of an input element at initialisation."""

    def hidden(self, tasks: Sequence[int]) -> Tensor:
        """Activations of the last hidden layer: (T, L, H)."""
        h = self.rows(tasks)
        for layer in self.hidden_layers:
            h = self.activation(layer(h))  # (T, L, D) -> (T, L, H)
        return h

    def thetas(self, tasks: Sequence[int]) -> Tensor:
        slots = self.output_layer(self.hidden(tasks)).flatten(1)  # (T, L, R) -> (T, L R)
        if slots.shape[1] > self.num_outputs:  # a split: the gradient of a slice would be zero-filled first
            slots = slots.split([self.num_outputs, slots.shape[1] - self.num_outputs], dim=1)[0]  # (T, P)
        return slots if self.slots is None else self._in_order(self.slots).take(slots)

    def _in_order(self, slots: Tensor) -> ColumnBlocks:
        """The slots of theta's elements: a few long blocks, computed once per growth."""
        if self._order is None or self._order[0] is not slots or self._order[1] != slots._version:
            self._order = slots, slots._version, ColumnBlocks.of(slots, self.num_outputs)
        return self._order[2]

    def add_task(self, start: Start, *, generator: Generator) -> None:
        if self.num_tasks == 0 and start.variances is not None:
            self.start_with(start.variances, generator, start.weights)
        embedding = torch.randn(self.task_embedding_size, generator=generator) * self.task_embedding_std
        self.task_embeddings.append(nn.Parameter(embedding))
        self.num_tasks += 1

    def remove_task(self, task: int) -> None:
        self.task_embeddings = without(self.task_embeddings, task)
        self.num_tasks -= 1

    def start_with(self, variances: Tensor, generator: Generator, weights: Tensor | None) -> None:
        """Initialise so that the first task's outputs have these variances (P,)."""
        self.match_variances(self.output_layer, variances, generator, weights)

    def match_variances(
        self, layer: nn.Linear, variances: Tensor, generator: Generator, weights: Tensor | None = None
    ) -> None:
        """Initialise an output layer so that outputs have these variances (P,) over embeddings and weights."""
        moment = self.input_second_moment()
        for hidden in self.hidden_layers:
            moment = activation_second_moment(self.activation, moment, cast(nn.Linear, hidden))
        match_output_variances(layer, moment, variances, generator, weights)

    def grow(self, old_positions: Tensor, start: Start, *, generator: Generator) -> None:
        old = self.slots if self.slots is not None else torch.arange(self.num_outputs)
        slots = torch.full((len(start.theta),), -1)
        slots[old_positions] = old
        slots[slots < 0] = torch.arange(self.num_outputs, len(start.theta))  # new elements take new slots at the end
        self.slots = slots
        self.num_outputs = len(start.theta)
        targets = None
        if start.variances is not None:
            targets = torch.empty_like(start.variances)
            targets[slots] = start.variances  # in the order of the slots
        self.grow_outputs(targets, generator)

    @abstractmethod
    def grow_outputs(self, variances: Tensor | None, generator: Generator) -> None:
        """Add outputs until there are at least ``num_outputs`` slots; existing ones keep their values."""

    def trained_parameters(self, task: int) -> list[nn.Parameter]:
        return list(self.parameters())

    def per_task_parameters(self) -> int:
        return self.task_embedding_size


@final
class PlainHypernetwork(Hypernetwork):
    """All of theta from one pass: the task's embedding is the only row."""

    def __init__(
        self,
        num_outputs: int,
        *,
        hidden: Sequence[int],
        activation: str = "relu",
        task_embedding_size: int = 32,
        task_embedding_std: float = 1.0,
        generator: Generator,
    ) -> None:
        super().__init__(
            num_outputs,
            input_size=task_embedding_size,
            row_size=num_outputs,
            hidden=hidden,
            activation=activation,
            task_embedding_size=task_embedding_size,
            task_embedding_std=task_embedding_std,
            generator=generator,
        )

    def rows(self, tasks: Sequence[int]) -> Tensor:
        return torch.stack([self.task_embeddings[task] for task in tasks]).unsqueeze(1)  # (T, E) -> (T, 1, E)

    def input_second_moment(self) -> float:
        return self.task_embedding_std**2

    def grow_outputs(self, variances: Tensor | None, generator: Generator) -> None:
        old = self.output_layer
        new = xavier_linear(old.in_features, self.num_outputs, generator)
        if variances is not None:
            self.match_variances(new, variances, generator)
        new.weight.data[: old.out_features] = old.weight.data
        new.bias.data[: old.out_features] = old.bias.data
        self.output_layer = new


@final
class PerTaskHypernetworks(TaskMap):
    """One hypernetwork per task, with one embedding (or those of an ensemble): the SeparatePosteriors-TC baseline."""

    def __init__(self, num_outputs: int, make: Callable[[int, Generator], TaskMap]) -> None:
        super().__init__()
        self.num_outputs, self.num_tasks, self.make = num_outputs, 0, make
        self.separate = nn.ModuleList()

    def _hypernetwork(self, task: int) -> TaskMap:
        return cast(TaskMap, self.separate[task])

    def add_task(self, start: Start, *, generator: Generator) -> None:
        hypernetwork = self.make(self.num_outputs, generator)
        hypernetwork.add_task(start, generator=generator)
        self.separate.append(hypernetwork)
        self.num_tasks += 1

    def remove_task(self, task: int) -> None:
        del self.separate[task]
        self.num_tasks -= 1

    def thetas(self, tasks: Sequence[int]) -> Tensor:
        return torch.cat([self._hypernetwork(task).thetas([0]) for task in tasks])  # (T, P)

    def grow(self, old_positions: Tensor, start: Start, *, generator: Generator) -> None:
        for task in range(self.num_tasks):
            self._hypernetwork(task).grow(old_positions, start, generator=generator)
        self.num_outputs = len(start.theta)

    def trained_parameters(self, task: int) -> list[nn.Parameter]:
        return list(self.separate[task].parameters())

    def per_task_parameters(self) -> int:
        return self._hypernetwork(-1).num_parameters()

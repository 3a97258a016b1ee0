"""One forward pass under the weights that stand for a posterior: features of some layers, and the outputs."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from metareplay.batches.auxiliary import TURNS
from metareplay.inference.statistics.settings import StatisticsSettings
from metareplay.model import ContinualModel
from metareplay.nets.features import OUTPUTS, described_layers, layer_features
from metareplay.nets.lending import borrowed
from metareplay.nets.noise import drawing_in_evaluation
from metareplay.nets.weights import run_flat

MOST_LAYERS = 3
INPUTS = "inputs"
"""The name under which narrow inputs are described as if they were a layer of the first network."""
EDGES = "edges"
"""The same for the edges of images."""
FIXED = (INPUTS, EDGES)
"""What no change of a network touches."""


class Pass(NamedTuple):
    """What a network computes for some inputs."""

    features: dict[str, Tensor]
    """By layer (N, F)."""
    outputs: Tensor
    """All outputs (N, O)."""
    other: Tensor | None = None
    """The log-odds of the auxiliary outputs (N,), if there are any: high for an input of none of the task's classes."""


def chosen_layers(network: nn.Module) -> list[str]:
    """The layers whose inputs are described: not one that sees the input itself; at most three, spread."""
    layers = described_layers(network)
    if len(layers) <= MOST_LAYERS:
        return layers
    step = len(layers) / MOST_LAYERS
    return [layers[round((index + 1) * step) - 1] for index in range(MOST_LAYERS)]


def run_pass(
    model: ContinualModel,
    weights: Tensor,
    task: int,
    x: Tensor,
    settings: StatisticsSettings,
    *,
    width: int | None = None,
    features: bool = True,
    batch_size: int = 500,
) -> Pass:
    """Features and outputs of one network: weights (W,), with the buffers of the task it belongs to."""
    named, width = settings.layers, width or settings.width
    layers = list(named) or chosen_layers(model.network)
    if not features:
        outputs = _outputs(model, weights, task, x, batch_size)
        return Pass({}, outputs, _odds_of_other(model, weights, task, x, outputs, batch_size))
    by_layer = {} if layers else {OUTPUTS: _outputs(model, weights, task, x, batch_size)}
    by_layer |= (
        {}
        if not layers
        else layer_features(
            model.network,
            model.spec,
            weights,
            x,
            model.buffers(task)[:1],
            layers=layers,
            of_inputs=not named,
            width=width,
            batch_size=batch_size,
            outputs=True,
        )
    )
    outputs = by_layer.pop(OUTPUTS)
    described = {name: projected(values, width) for name, values in by_layer.items()}
    if task == 0 and x.shape[1:].numel() <= width:
        described = {INPUTS: x.flatten(1), **described}
    return Pass(described, outputs, _odds_of_other(model, weights, task, x, outputs, batch_size))


def _odds_of_other(
    model: ContinualModel, weights: Tensor, task: int, x: Tensor, outputs: Tensor, batch_size: int
) -> Tensor | None:
    """log p(other) / p(one of the task's classes) (N,), from all outputs (N, O); None without auxiliary outputs.

    A network that was trained to tell orientations is asked about all of them: the mean of the log-odds against the
    right one.
    """
    if not any(model.auxiliary_outputs):
        return None
    head, columns = model.heads[task], model.training_columns(task)
    classes, odds = head.stop - head.start, []
    for turn in range(TURNS if model.auxiliary_outputs.rotations else 1):
        if turn:
            outputs = _outputs(model, weights, task, x.rot90(turn, (-2, -1)), batch_size)
        competing = outputs[:, columns].double()  # (N, C + A)
        right = torch.zeros(competing.shape[1], dtype=torch.bool)
        right[turn * classes : (turn + 1) * classes] = True
        odds.append(competing[:, ~right].logsumexp(1) - competing[:, right].logsumexp(1))  # (N,)
    return torch.stack(odds).mean(0)  # (turns, N) -> (N,)


@torch.no_grad()
def _outputs(model: ContinualModel, weights: Tensor, task: int, x: Tensor, batch_size: int) -> Tensor:
    """All outputs (N, O) under one weight vector."""
    generator = torch.Generator().manual_seed(0)
    with borrowed(model.network) as lent, drawing_in_evaluation(model.network, generator):
        parts = [
            run_flat(lent, model.spec, weights.unsqueeze(0), part.to(model.device), model.buffers(task)[:1])[0].cpu()
            for part in x.split(batch_size)
        ]
    return torch.cat(parts)  # (N, O)


def projected(features: Tensor, width: int) -> Tensor:
    """At most ``width`` features, by a fixed random rotation: (N, F) -> (N, width)."""
    if features.shape[1] <= width:
        return features
    return features @ _rotation(features.shape[1], width)


@lru_cache(maxsize=16)
def _rotation(features: int, width: int) -> Tensor:
    """Orthonormal columns (F, width), the same every time."""
    noise = torch.randn(features, width, generator=torch.Generator().manual_seed(features), dtype=torch.float64)
    return torch.linalg.qr(noise).Q.float()


def in_parts(x: Tensor, y: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of inputs and class indices."""
    yield from zip(x.split(size), y.split(size), strict=True)


def total_bytes(tensors: Sequence[Tensor]) -> int:
    """The size of some tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

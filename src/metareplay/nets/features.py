"""Features by layer: what any ``nn.Module`` computes on the way to its outputs, under given weights."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import isqrt
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn
from torch.func import functional_call
from torch.nn.modules.conv import _ConvNd

from metareplay.errors import ConfigError
from metareplay.nets.lending import borrowed
from metareplay.nets.noise import drawing_in_evaluation
from metareplay.nets.weights import Buffers, WeightSpec

Flatten = Callable[[Tensor, nn.Module], Tensor]
OUTPUTS = "outputs"
"""The name under which the network's outputs are returned along with its features."""


def weighted_layers(module: nn.Module) -> list[str]:
    """The names of a network's linear layers and convolutions."""
    return [name for name, layer in module.named_modules() if name and isinstance(layer, nn.Linear | _ConvNd)]


def described_layers(module: nn.Module) -> list[str]:
    """The layers whose inputs say what a network sees in its inputs: what it names itself, else all but the first."""
    own: Callable[[], list[str]] | None = getattr(module, "described_layers", None)
    return weighted_layers(module)[1:] if own is None else own()


@torch.no_grad()
def layer_features(
    module: nn.Module,
    spec: WeightSpec,
    weights: Tensor,
    x: Tensor,
    buffers: Sequence[Buffers] = (),
    *,
    layers: Sequence[str] = (),
    of_inputs: bool | None = None,
    pooled: bool = True,
    width: int | None = None,
    outputs: bool = False,
    batch_size: int = 500,
    generator: Generator | None = None,
) -> dict[str, Tensor]:
    """Outputs of the named submodules (``of_inputs``: their inputs), by name; of none, all weighted layers' inputs.

    Weight samples (S, W) give features (S, N, F), a single weight vector (W,) gives (N, F). Sample i uses set i of the
    buffers, modulo their number. Positions of feature maps and sequences are averaged (``pooled``) or flattened; given
    a ``width``, feature maps are averaged to the finest grid with at most this many features. With ``outputs`` the
    network's outputs are returned too. For a layer that is called more than once, the last call counts. Random numbers
    that the network draws come from the generator.
    """
    samples = weights if weights.dim() == 2 else weights.unsqueeze(0)  # (S, W)
    sets, noise = buffers or [dict(module.named_buffers())], generator or torch.Generator().manual_seed(0)
    by_layer: dict[str, list[Tensor]] = {}
    watched, of_outputs = list(layers) or weighted_layers(module), bool(layers) if of_inputs is None else not of_inputs
    flatten = partial(_flat, pooled=pooled, width=width)
    with borrowed(module) as lent:
        for index, flat in enumerate(samples):
            state = {**spec.unflatten(flat), **sets[index % len(sets)]}
            batches_by_layer: dict[str, list[Tensor]] = {}
            for batch in x.split(batch_size):
                with _watched(lent, watched, flatten, of_outputs) as seen, drawing_in_evaluation(module, noise):
                    result = functional_call(lent, state, (batch.to(flat.device),))
                seen = {**seen, OUTPUTS: result} if outputs else seen
                for name, values in seen.items():
                    batches_by_layer.setdefault(name, []).append(values.cpu())
            for name, batches in batches_by_layer.items():
                by_layer.setdefault(name, []).append(torch.cat(batches))  # (N, F)
    stacked = {name: torch.stack(batches) for name, batches in by_layer.items()}  # (S, N, F)
    return stacked if weights.dim() == 2 else {name: values[0] for name, values in stacked.items()}


@contextmanager
def _watched(
    module: nn.Module, layers: Sequence[str], flatten: Flatten, outputs: bool
) -> Iterator[Mapping[str, Tensor]]:
    """Inputs or outputs (B, F) of a module's layers, recorded while it runs; no other thread may use the module."""
    known, seen = dict(module.named_modules()), dict[str, Tensor]()
    if unknown := [name for name in layers if not name or name not in known]:
        raise ConfigError(
            f"the network has no layer {unknown[0]!r}; it has {', '.join(name for name in known if name)}"
        )
    handles = [known[name].register_forward_hook(_hook(seen, name, flatten, output=outputs)) for name in layers]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _hook(
    seen: dict[str, Tensor], name: str, flatten: Flatten, *, output: bool
) -> Callable[[nn.Module, Any, Any], None]:
    def hook(layer: nn.Module, inputs: Any, outputs: Any) -> None:
        value = outputs if output else inputs
        value = value[0] if isinstance(value, tuple) else value
        if not isinstance(value, Tensor):
            raise ConfigError(f"the layer {name!r} returns a {type(value).__name__}, not a tensor; name another layer")
        seen[name] = flatten(value, layer)

    return hook


def _flat(value: Tensor, layer: nn.Module, *, pooled: bool, width: int | None) -> Tensor:
    """One row per input: (B, ...) -> (B, F)."""
    if value.dim() == 4 and width is not None and not isinstance(layer, nn.Linear):
        channels, height, columns = value.shape[1:]
        side = max(1, isqrt(width // channels))
        return F.adaptive_avg_pool2d(value, (min(side, height), min(side, columns))).flatten(
            1
        )  # (B, C, H, W) -> (B, F)
    if value.dim() < 3 or not pooled:
        return value.flatten(1) if value.dim() > 1 else value.unsqueeze(1)
    if isinstance(layer, nn.Linear):
        return value.flatten(1, -2).mean(1)  # (B, positions, F) -> (B, F)
    return value.flatten(2).mean(2)  # (B, F, positions) -> (B, F)

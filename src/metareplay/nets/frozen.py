"""Frozen weights of a network (``requires_grad=False``): no posterior, the same for all tasks.

A layer that has only frozen weights is fixed as a whole: it stays in evaluation mode while a task is trained, and its
buffers are constants. So is a pretrained network, even if trained layers were added to it.
"""

import threading
from collections.abc import Mapping
from typing import final
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from metareplay.errors import CheckpointError, ConfigError

_FIXED: WeakKeyDictionary[nn.Module, tuple[str, ...]] = WeakKeyDictionary()
_LOCK = threading.Lock()


@final
class Pretrained(nn.Module):
    """A network that is loaded again by its name: its frozen weights and its buffers are not part of a model's
    files."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.module(x)
        return features


def frozen_weights(network: nn.Module) -> dict[str, nn.Parameter]:
    """The weights that training leaves alone, by name; those of a pretrained network are not among them."""
    frozen = {name: weight for name, weight in network.named_parameters() if not weight.requires_grad}
    elsewhere = _pretrained(network) if frozen else ()
    return {name: weight for name, weight in frozen.items() if not name.startswith(elsewhere)} if elsewhere else frozen


def own_buffers(network: nn.Module) -> dict[str, Tensor]:
    """A network's buffers by name, without those of a pretrained network in it."""
    buffers = dict(network.named_buffers())
    elsewhere = _pretrained(network) if buffers else ()
    return {name: value for name, value in buffers.items() if not name.startswith(elsewhere)} if elsewhere else buffers


def _pretrained(network: nn.Module) -> tuple[str, ...]:
    """Where in the network pretrained ones are."""
    return tuple(f"{name}." for name, layer in network.named_modules() if isinstance(layer, Pretrained))


def fixed_layers(network: nn.Module) -> tuple[str, ...]:
    """The names of the outermost layers that are pretrained, or all of whose weights are frozen.

    Layers without weights follow the network.
    """
    with _LOCK:
        known = _FIXED.get(network)
    if known is None:
        some = any(not weight.requires_grad for weight in network.parameters()) or _pretrained(network)
        known = tuple(_find_fixed(network, "")) if some else ()
        with _LOCK:
            _FIXED[network] = known
    return known


def _find_fixed(layer: nn.Module, name: str) -> list[str]:
    weights = [weight.requires_grad for weight in layer.parameters()]
    if isinstance(layer, Pretrained) or (weights and not any(weights)):
        return [name]
    return [
        found for part, inner in layer.named_children() for found in _find_fixed(inner, f"{name}.{part}".lstrip("."))
    ]


def fixed_buffers(network: nn.Module) -> frozenset[str]:
    """The names of the buffers that never change."""
    layers = tuple(f"{name}." for name in fixed_layers(network))
    return frozenset(name for name, _ in network.named_buffers() if name.startswith(layers)) if layers else frozenset()


def share_frozen(network: nn.Module, weights: Mapping[str, nn.Parameter]) -> None:
    """Let a network that was built again, perhaps with more outputs, use the frozen weights of the first."""
    fresh = frozen_weights(network)
    if changed := [name for name in {**fresh, **weights} if name not in fresh or name not in weights]:
        raise ConfigError(
            f"the weight {changed[0]!r} is not frozen all the time; freeze the same weights for every task"
        )
    for name, weight in weights.items():
        if fresh[name].shape != weight.shape:
            raise ConfigError(
                f"the frozen weight {name!r} of shape {tuple(weight.shape)} changes to {tuple(fresh[name].shape)} with "
                "the number of outputs; only trained weights may"
            )
        owner, _, last = name.rpartition(".")
        setattr(network.get_submodule(owner), last, weight)


def restore_frozen(weights: Mapping[str, nn.Parameter], stored: Mapping[str, Tensor]) -> None:
    """Set the frozen weights to stored values."""
    if weights.keys() != stored.keys():
        odd = sorted(weights.keys() ^ stored.keys())[0]
        raise CheckpointError(
            f"the frozen weight {odd!r} does not fit this network; it belongs to another configuration"
        )
    for name, weight in weights.items():
        if weight.shape != stored[name].shape:
            raise CheckpointError(
                f"the stored weight {name!r} does not fit this network; it belongs to another configuration"
            )
        weight.data.copy_(stored[name])

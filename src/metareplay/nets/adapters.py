"""Backbones with low-rank adapters: ``adapters:NAME`` or ``adapters:NAME+mlp-100``.

The main network is the whole backbone, frozen, with adapters on some of its layers and a small network behind it. Its
weights, those of which posteriors are learned, are the adapters and the small network.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import ceil, prod
from typing import ClassVar, final

import torch
from pydantic import Field
from torch import Tensor, nn

from metareplay.limits import WITH_POSTERIOR, refuse_layers
from metareplay.nets.backbone_parts import Preparation
from metareplay.nets.backbones import ADAPTED, Backbone, BackboneSettings, hidden_widths, shared_backbone
from metareplay.nets.base import ActivationSettings, NetworkFactory, NetworkPart, register_network
from metareplay.nets.frozen import Pretrained
from metareplay.nets.lending import copy_sharing
from metareplay.nets.low_rank import add_adapters, chosen_names, is_adaptable
from metareplay.nets.mlp import MLP
from metareplay.scaling import Scaling
from metareplay.settings import Composition, Settings

NUMBERS_AT_ONCE = 10 * 3 * 224 * 224
"""Of inputs that run through a backbone together where no gradient is needed: ten images of 224 x 224 pixels."""
TEXTS_AT_ONCE = 32
SEEN = 1000
"""Inputs of the first task by whose features all features are standardised."""


class AdapterSettings(Settings):
    """Low-rank adapters."""

    group: ClassVar[str] = "adapters"
    rank: int = Field(8, ge=1, description="rank r of the change B A of a layer's weights")
    alpha: float = Field(8.0, gt=0, description="the change is scaled by alpha / r")
    layers: tuple[str, ...] = Field(
        (),
        description="layers of the backbone that get adapters: names or their ends, * matches anything; empty: those "
        "that compute the queries and values of attention, else all linear layers, else all convolutions",
    )


@final
class AdaptedNetwork(nn.Module):
    """Inputs -> features of the adapted backbone, standardised -> outputs.

    The backbone is always in evaluation mode.
    """

    centre: Tensor
    spread: Tensor

    def __init__(self, prepare: Preparation, backbone: nn.Module, head: MLP, width: int, at_once: int) -> None:
        super().__init__()
        self.prepare, self.at_once = prepare, at_once
        self.backbone, self.head = Pretrained(backbone), head
        self.register_buffer("centre", torch.zeros(width))
        self.register_buffer("spread", torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        together = torch.is_grad_enabled() or len(x) <= self.at_once or self._watched()
        parts = [x] if together else x.split(self.at_once)
        features = torch.cat([self.backbone(self.prepare(part)) for part in parts])  # (B, ...) -> (B, F)
        outputs: Tensor = self.head((features - self.centre) / self.spread)
        return outputs

    def _watched(self) -> bool:
        """Whether a hook wants to see what a layer of the backbone is given, which has to come in one piece."""
        return any(layer._forward_hooks for layer in self.backbone.modules())

    def described_layers(self) -> list[str]:
        """The layers whose inputs tell tasks apart: those of the small network, the first of which sees features."""
        return [f"head.layers.{index}" for index in range(len(self.head.layers))]


@final
class AdaptedFactory:
    """Builds the network with a given number of outputs; the frozen weights are the same tensors in all of them."""

    def __init__(
        self,
        name: str,
        backbone: Backbone,
        input_shape: tuple[int, ...],
        settings: AdapterSettings,
        activation: str,
    ) -> None:
        self.name, self.backbone, self.settings, self.activation = name, backbone, settings, activation
        called, self.width = _tried(backbone, input_shape)
        self.layers = chosen_names(backbone.name, backbone.loaded.module, called, settings.layers)
        pixels = prod((input_shape[0], *[backbone.loaded.size or side for side in input_shape[1:]]))
        self.at_once = TEXTS_AT_ONCE if backbone.reads_texts else max(1, NUMBERS_AT_ONCE // pixels)
        self.scaling = Scaling({})

    def see(self, x: Tensor) -> None:
        """Standardise the features by those of the first task's inputs (N, ...), as the backbone alone has them."""
        features = self.backbone.features(x[:: ceil(len(x) / SEEN)])  # (n, F)
        self.scaling = Scaling.of(features, features, regression=False, alike=True)

    def __call__(self, outputs: int) -> AdaptedNetwork:
        hidden = hidden_widths(self.name)
        refuse_layers((self.width, *hidden, outputs), f"the network {self.name}", WITH_POSTERIOR)
        module = copy_sharing(self.backbone.loaded.module)
        add_adapters(module, self.layers, self.settings.rank, self.settings.alpha)
        head = MLP((self.width,), hidden, outputs, self.activation)
        prepare = self.backbone.preparation._replace(rounds=self.backbone.reads_texts)
        network = AdaptedNetwork(prepare, module, head, self.width, self.at_once)
        if self.scaling.tensors:
            network.centre, network.spread = (self.scaling.tensors[name].clone() for name in ("x_mean", "x_scale"))
        return network


def _tried(backbone: Backbone, input_shape: Sequence[int]) -> tuple[list[str], int]:
    """The layers that a backbone calls and that can have adapters, in this order, and the number of its features."""
    called: dict[str, None] = {}
    known = {id(layer): name for name, layer in backbone.loaded.module.named_modules() if name and is_adaptable(layer)}

    def note(layer: nn.Module, inputs: object, outputs: object) -> None:
        if id(layer) in known:
            called[known[id(layer)]] = None

    layers = [layer for layer in backbone.loaded.module.modules() if id(layer) in known]
    handles = [layer.register_forward_hook(note) for layer in layers]
    try:
        with _without_shortcuts():
            width = backbone.try_out(input_shape)
    finally:
        for handle in handles:
            handle.remove()
    return list(called), width


@contextmanager
def _without_shortcuts() -> Iterator[None]:
    """PyTorch's own transformer layers otherwise take the weights of their parts, and do not call them."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _build(name: str, input_shape: tuple[int, ...], parts: Composition) -> NetworkFactory:
    backbone = shared_backbone(name, parts.get(BackboneSettings))
    activation = parts.get(ActivationSettings).activation
    return AdaptedFactory(name, backbone, input_shape, parts.get(AdapterSettings), activation)


register_network(
    NetworkPart(
        name="adapters",
        phrase="a pretrained backbone with adapters",
        settings=(ActivationSettings, BackboneSettings, AdapterSettings),
        pattern=f"{ADAPTED}.+",
        title="adapters:NAME+mlp-WIDTH-...",
        description="a pretrained network, frozen, with low-rank adapters (LoRA) on its layers, and a linear layer "
        "(adapters:NAME) or an MLP behind it; names as for features:NAME",
        build=_build,
    )
)

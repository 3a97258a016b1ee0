"""Adapters of one task in the folder format of the package PEFT, which loads them onto the same pretrained network.

The package itself is not needed to write them.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from safetensors.torch import save
from torch import Tensor

from metareplay.errors import ConfigError
from metareplay.export.facts import as_text, facts_of
from metareplay.export.modules import Learned, calibrated, predictive_weights
from metareplay.nets.adapters import AdaptedFactory, AdaptedNetwork
from metareplay.nets.backbones import Backbone
from metareplay.nets.low_rank import FIRST, SECOND, LowRankLayer, factors_of
from metareplay.nets.transformers_backbone import ImageEncoder, TextEncoder

CONFIG, ADAPTER, HEAD = "adapter_config.json", "adapter_model.safetensors", "head.safetensors"
"""The files of one adapter; what PEFT has no place for is in the last one."""
CONTENTS = ("mean", "samples")
FACTS = "metareplay"
INSIDE = "backbone.module."
"""Where the pretrained network is in the main network."""


class Place(NamedTuple):
    """A layer with an adapter: its name in the main network, and in what PEFT calls the base model."""

    layer: str
    in_base: str


def peft_files(learned: Learned, task: int, *, content: str = "mean", samples: int | None = None) -> dict[str, bytes]:
    """The files of a folder by their paths in it: of the posterior's mean, or of weight samples, a folder each."""
    if content not in CONTENTS:
        raise ConfigError(f"content={content!r} is unknown; choose one of {', '.join(CONTENTS)}")
    if content == "mean":
        if samples is not None:
            raise ConfigError("the posterior's mean has no weight samples; leave the number of samples out")
        return _of_one(learned, task, learned.learner.model.central_weights(task).cpu(), content)
    drawn = predictive_weights(learned.learner, task, samples)  # (S, W)
    return {
        f"sample-{index}/{name}": file
        for index, weights in enumerate(drawn)
        for name, file in _of_one(learned, task, weights, "sample", index).items()
    }


def _of_one(learned: Learned, task: int, weights: Tensor, content: str, index: int = 0) -> dict[str, bytes]:
    """The files of one weight vector (W,)."""
    model = learned.learner.model
    network, factory = cast(AdaptedNetwork, model.network), cast(AdaptedFactory, model.factory)
    named, places = model.spec.unflatten(weights), _places(network, factory.backbone)
    adapter: dict[str, Tensor] = {}
    for layer, in_base in places:
        wrapped = cast(LowRankLayer, network.get_submodule(layer))
        factors = factors_of(wrapped, *(named[f"{layer}.{part}.weight"] for part in (FIRST, SECOND)))
        adapter |= {
            f"base_model.model.{in_base}.{part}.weight": factor.contiguous()
            for part, factor in zip((FIRST, SECOND), factors, strict=True)
        }
    buffers = model.buffers(task)
    head = {name.removeprefix("head."): weight for name, weight in named.items() if name.startswith("head.")}
    head |= {name: buffers[index % len(buffers)][name].cpu() for name in ("centre", "spread")}
    head |= {f"probabilities.{name}": value for name, value in calibrated(learned, task).state_dict().items()}
    facts = {**facts_of(learned, task), "content": content, **_preparation(factory.backbone, factory.activation)}
    return {
        ADAPTER: save(adapter, {"format": "pt"}),
        HEAD: save({name: value.contiguous() for name, value in head.items()}, {FACTS: as_text(facts)}),
        CONFIG: (json.dumps(_config(factory, [place.in_base for place in places]), indent=2) + "\n").encode(),
    }


def _places(network: AdaptedNetwork, backbone: Backbone) -> list[Place]:
    """All layers with adapters."""
    found = [name for name, layer in network.named_modules() if isinstance(layer, LowRankLayer)]
    return [Place(name, _in_base(backbone, name.removeprefix(INSIDE))) for name in found]


def _in_base(backbone: Backbone, name: str) -> str:
    """A layer's name in the base; that of an encoder of ``transformers`` is the model that this package loads."""
    encoder = backbone.loaded.module
    if not isinstance(encoder, ImageEncoder | TextEncoder):
        return name
    part = f"{encoder.part}." if encoder.part else ""  # of a model of images and text
    return f"{part}{name.removeprefix('model.')}"


def _config(factory: AdaptedFactory, targets: list[str]) -> dict[str, Any]:
    """What PEFT needs to know."""
    return {
        "peft_type": "LORA",
        "task_type": None,
        "base_model_name_or_path": factory.backbone.name,
        "r": factory.settings.rank,
        "lora_alpha": factory.settings.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "use_rslora": False,
        "inference_mode": True,
        "target_modules": _targets(factory.backbone, targets),
    }


def _targets(backbone: Backbone, names: list[str]) -> list[str] | str:
    """The layers' names, which for PEFT are also those of layers that end like them; where these exist, a pattern."""
    known = [_in_base(backbone, name) for name, _ in backbone.loaded.module.named_modules()]
    ends = tuple(f".{name}" for name in names)
    twins = [name for name in known if name.endswith(ends) and name not in names]
    return "|".join(map(re.escape, names)) if twins else names


def _preparation(backbone: Backbone, activation: str) -> Mapping[str, Any]:
    """How inputs are prepared, and what is between the layers of the head."""
    _, size, mean, std, _ = backbone.loaded
    return {
        "backbone": {"name": backbone.name, "checksum": backbone.checksum, "size": size, "mean": mean, "std": std},
        "activation": activation,
    }

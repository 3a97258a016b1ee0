"""Pretrained backbones: frozen networks whose features a small network learns from.

``features:NAME`` is a linear layer on the features of a backbone, ``features:NAME+mlp-100`` a multilayer perceptron.
The backbone itself is not part of the main network: inputs are turned into features once, before learning.
"""

import difflib
import hashlib
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from weakref import WeakValueDictionary

import torch
from pydantic import Field
from torch import Tensor, nn

from metareplay.arrays import bytes_of
from metareplay.errors import ConfigError, DataError
from metareplay.nets.backbone_parts import BACKBONES, Loaded, Preparation
from metareplay.nets.base import NETWORKS, ActivationSettings, NetworkFactory, NetworkPart, register_network
from metareplay.nets.mlp import mlp_factory
from metareplay.nets.own import load_function, refuse_unpermitted, words_of
from metareplay.nets.transformers_backbone import TextEncoder, load_transformer
from metareplay.settings import Composition, Settings

PREFIX, ADAPTED = "features:", "adapters:"
"""A small network on a backbone's features, or one that is trained together with adapters in the backbone."""
AT_ONCE, PIXELS_AT_ONCE = 10, 250_000
"""Inputs that run through a backbone together, and the most pixels of images: few enough for the activations to stay in
the processor's cache and in memory that is used again."""
OWN = re.compile(r"([^\W\d]\w*)(\.[^\W\d]\w*)*:[^\W\d]\w*")
"""package.module:function"""


class BackboneSettings(Settings):
    """How images are handed to a backbone."""

    group: ClassVar[str] = "features"
    size: int | None = Field(
        None, ge=1, description="side length in pixels that images are resized to; null: the backbone's default"
    )
    mean: tuple[float, ...] = Field(
        (), description="mean of each colour channel, of pixels in [0, 1]; empty: the backbone's default"
    )
    std: tuple[float, ...] = Field(
        (), description="standard deviation of each colour channel; empty: the backbone's default"
    )


class FeatureSettings(Settings):
    """How features are computed before a network learns from them."""

    group: ClassVar[str] = "features"
    power: float | None = Field(
        None,
        gt=0,
        le=1,
        description="power to which features are raised, with their signs, before they are standardised: 0.5 suits "
        "features that are mostly near zero, such as averages of rectified units; null: the backbone's default",
    )
    mirror: bool = Field(
        False, description="average the features of an image and of its mirror image, left and right; twice the time"
    )
    autocast: bool = Field(
        False,
        description="run the backbone in bfloat16: half the time on processors with support for it, less exact",
    )


@dataclass(frozen=True)
class Backbone:
    """A frozen network, with all that decides its features."""

    name: str
    loaded: Loaded
    checksum: str
    """Of the weights and of how images are prepared."""
    mirror: bool = False
    """Whether the features of an image are means over it and its mirror image; for whoever asks for features."""
    autocast: bool = False

    @property
    def reads_texts(self) -> bool:
        """Whether its inputs are texts."""
        return isinstance(self.loaded.module, TextEncoder)

    @property
    def preparation(self) -> Preparation:
        """How it wants its inputs."""
        return Preparation(self.name, *self.loaded[1:4])

    @torch.inference_mode()
    def features(self, x: Tensor) -> Tensor:
        """Features (N, F), float32, of images (N, C, H, W) in [0, 1] or of inputs of any other shape as they are."""
        parts = [self._run(part) for part in x.split(self._at_once(x))]
        return torch.cat(parts).clone()

    @torch.inference_mode()
    def try_out(self, input_shape: Sequence[int]) -> int:
        """The number of features of inputs of this shape."""
        return self._run(torch.zeros(2, *input_shape), finite=False).shape[1]

    def _at_once(self, x: Tensor) -> int:
        """How many of these inputs (N, ...) run together."""
        if x.ndim != 4:
            return AT_ONCE
        pixels = self.loaded.size**2 if self.loaded.size is not None else x.shape[2] * x.shape[3]
        return max(1, min(AT_ONCE, PIXELS_AT_ONCE // max(pixels, 1)))

    def _run(self, x: Tensor, *, finite: bool = True) -> Tensor:
        try:
            with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
                features = self.loaded.module(self.preparation(x))
        except DataError:
            raise
        except Exception as error:  # whatever the module does
            raise ConfigError(
                f"the backbone {self.name} fails on inputs of shape {tuple(x.shape[1:])}: {words_of(error)}"
            ) from error
        if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != len(x):
            shape = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
            raise ConfigError(
                f"the backbone {self.name} returns {shape} for {len(x)} inputs; it must return features of shape "
                f"({len(x)}, F)"
            )
        if finite and not bool(features.isfinite().all()):
            raise DataError(f"the backbone {self.name} returns NaN or infinite features; check the inputs")
        return features.float()


def is_features(network: str) -> bool:
    """Whether a network's name is that of a small network on a backbone's features, which are computed before."""
    return network.startswith(PREFIX)


def is_adapted(network: str) -> bool:
    """Whether a network's name is that of a backbone with adapters."""
    return network.startswith(ADAPTED)


def prefix_of(network: str) -> str:
    """What stands before the name of a backbone."""
    return ADAPTED if is_adapted(network) else PREFIX


def has_backbone(network: str) -> bool:
    """Whether a network's name has a backbone in it."""
    return network.startswith((PREFIX, ADAPTED))


def split_name(network: str) -> tuple[str, str]:
    """The names of the backbone and of the small network: ``features:NAME+mlp-100`` -> NAME, mlp-100."""
    both = network.removeprefix(PREFIX).removeprefix(ADAPTED)
    name, plus, head = both.rpartition("+")
    if plus and re.fullmatch(NETWORKS["mlp"].pattern, head):
        return name, head
    return both, "mlp"


def hidden_widths(network: str) -> tuple[int, ...]:
    """Of the small network."""
    return tuple(int(width) for width in split_name(network)[1].split("-")[1:])


def refuse_stored_name(network: str) -> None:
    """Refuse the name of a network that a file holds if it names code that the user has not permitted."""
    name = split_name(network)[0] if has_backbone(network) else network
    if OWN.fullmatch(name):
        refuse_unpermitted(name)


def find_backbone(
    network: str, settings: BackboneSettings | None = None, features: FeatureSettings | None = None
) -> Backbone:
    """The backbone in a network's name, by what it is: a registered name, ``module:function``, or ``transformers``."""
    name, settings, features = split_name(network)[0], settings or BackboneSettings(), features or FeatureSettings()
    loaded = _load(name)
    mean, std = settings.mean or loaded.mean, settings.std or loaded.std
    if len(mean) != len(std):
        raise ConfigError(f"features.mean has {len(mean)} values, but features.std {len(std)}; give one per channel")
    if any(value <= 0 for value in std):
        raise ConfigError(f"features.std={list(std)}: every standard deviation must be positive")
    size, power = settings.size or loaded.size, features.power or loaded.power
    loaded = Loaded(loaded.module.eval().requires_grad_(False), size, mean, std, power)
    return Backbone(name, loaded, _checksum(loaded, features.autocast), features.mirror, features.autocast)


_IN_USE: WeakValueDictionary[tuple[object, ...], Backbone] = WeakValueDictionary()
_IN_USE_LOCK = threading.Lock()


def shared_backbone(network: str, settings: BackboneSettings | None = None) -> Backbone:
    """As ``find_backbone``, but a backbone that is in use already, with the same weights, is held in memory once."""
    found = find_backbone(network, settings)
    module = found.loaded.module
    with _IN_USE_LOCK:
        return _IN_USE.setdefault((found.name, found.checksum, type(module), repr(module)), found)


def _load(name: str) -> Loaded:
    if name in BACKBONES:
        return BACKBONES[name].load()
    if OWN.fullmatch(name):
        return Loaded(_own(name))
    close = difflib.get_close_matches(name.lower(), list(BACKBONES), n=1, cutoff=0.8)
    if not Path(name).is_dir() and (close or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name)):
        hint = f"; did you mean {close[0]}?" if close else ";"
        raise ConfigError(
            f"backbone {name}: there is no such backbone{hint} give {', '.join(BACKBONES)}, module:function, or "
            "the name or folder of a transformers model"
        )
    return load_transformer(name)


def _own(name: str) -> nn.Module:
    """What a user's function without arguments returns."""
    function = load_function(name)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            module = function()
    except Exception as error:  # whatever the user's function does
        raise ConfigError(
            f"the backbone {name} cannot be built by {name.split(':')[1]}(): {words_of(error)}"
        ) from error
    if not isinstance(module, nn.Module):
        raise ConfigError(f"the backbone {name} is a {type(module).__name__}; its function must return an nn.Module")
    return module


def _checksum(loaded: Loaded, autocast: bool) -> str:
    """SHA-256 of all tensors, of how images are prepared, and of a precision that is not the usual one.

    What happens to features afterwards is not part of it: they are cached as they are.
    """
    known = ("bfloat16",) if autocast else ()
    digest = hashlib.sha256(repr((type(loaded.module).__qualname__, *loaded[1:4], *known)).encode())
    for name, tensor in loaded.module.state_dict().items():
        digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(bytes_of(tensor))
    return digest.hexdigest()[:16]


def _build(name: str, input_shape: tuple[int, ...], parts: Composition) -> NetworkFactory:
    """The small network; its inputs are features already."""
    activation = parts.get(ActivationSettings).activation
    return mlp_factory(name, input_shape, hidden_widths(name), activation)


register_network(
    NetworkPart(
        name="features",
        phrase="a pretrained backbone",
        settings=(ActivationSettings, BackboneSettings, FeatureSettings),
        pattern=f"{PREFIX}.+",
        title="features:NAME+mlp-WIDTH-...",
        description="a linear layer (features:NAME) or an MLP on the features of a frozen pretrained network: a name, "
        "module:function, or the name or folder of a transformers model",
        build=_build,
        multilayer=True,
    )
)

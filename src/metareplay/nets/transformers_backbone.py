"""Image encoders of the package transformers as backbones, by the name or folder of a model.

Only safetensors are read, and no code that comes with a model is run.
"""

from typing import Any, final

import torch
from torch import Tensor, nn

from metareplay.data.offline import is_offline
from metareplay.errors import ConfigError
from metareplay.nets.backbone_parts import Loaded
from metareplay.nets.own import words_of

UNUSED = ("pooler.", "vision_model.pooler.")
"""Weights that no feature depends on, so that a model may lack them."""


@final
class ImageEncoder(nn.Module):
    """The first token of the last layer, or the mean over positions where there are no tokens."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = getattr(model, "vision_model", model)  # of a model of images and text

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.model(pixel_values=x).last_hidden_state
        return hidden[:, 0] if hidden.ndim == 3 else hidden.mean((2, 3))  # (N, T, F) or (N, F, h, w) -> (N, F)


def load_transformer(name: str) -> Loaded:
    """The model of this name, or in this folder."""
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"network=features:{name} needs the package transformers; "
            "install it with pip install metareplay[backbones], or give module:function"
        ) from error
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model, info = transformers.AutoModel.from_pretrained(
                name,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
                local_files_only=is_offline(),
            )
    except Exception as error:  # of many kinds
        raise ConfigError(
            f"network=features:{name}: transformers cannot load this model ({words_of(error)}); give a name or folder "
            "of a model in safetensors, a registered backbone, or module:function"
        ) from error
    if missing := sorted(key for key in info["missing_keys"] if not key.startswith(UNUSED)):
        raise ConfigError(
            f"network=features:{name}: the model lacks the weights {missing[0]!r} and {len(missing) - 1} more, which "
            "would be random; choose a complete one"
        )
    if model.main_input_name != "pixel_values" and not hasattr(model, "vision_model"):
        raise ConfigError(
            f"network=features:{name} is a {type(model).__name__}, whose inputs are {model.main_input_name}, not "
            "images; choose an image encoder such as ViT, DINOv2 or ConvNeXt"
        )
    size, mean, std = _preparation(name, model.config, transformers)
    return Loaded(ImageEncoder(model), size, mean, std)


def _preparation(name: str, config: Any, package: Any) -> tuple[int | None, tuple[float, ...], tuple[float, ...]]:
    """Size, mean and standard deviation of images, as stored beside the model; else by its configuration."""
    try:
        stored, _ = package.ImageProcessingMixin.get_image_processor_dict(name)
    except Exception:  # the model has no such file
        stored = {}
    vision = getattr(config, "vision_config", config)
    size = stored.get("crop_size") or stored.get("size") or getattr(vision, "image_size", None)
    if isinstance(size, dict):
        size = size.get("height") or size.get("shortest_edge")
    channels = int(getattr(vision, "num_channels", 3))
    mean, std = stored.get("image_mean") or [0.5] * channels, stored.get("image_std") or [0.5] * channels
    return None if size is None else int(size), tuple(map(float, mean)), tuple(map(float, std))

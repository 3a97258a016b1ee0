"""Encoders of images and of texts of the package transformers as backbones, by the name or folder of a model.

Only safetensors are read, and no code that comes with a model is run.
"""

from typing import Any, final

import torch
from torch import Tensor, nn

from metareplay.data.offline import is_offline
from metareplay.errors import ConfigError
from metareplay.nets.backbone_parts import Loaded
from metareplay.nets.own import words_of
from metareplay.written_text import as_texts

LONGEST = 512
"""Tokens of a text that are read."""
UNUSED = ("pooler.", "vision_model.pooler.")
"""Weights that no feature depends on, so that a model may lack them."""


@final
class ImageEncoder(nn.Module):
    """The first token of the last layer, or the mean over positions where there are no tokens."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.part = "vision_model" if hasattr(model, "vision_model") else ""  # of a model of images and text
        self.model = getattr(model, self.part) if self.part else model

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.model(pixel_values=x).last_hidden_state
        return hidden[:, 0] if hidden.ndim == 3 else hidden.mean((2, 3))  # (N, T, F) or (N, F, h, w) -> (N, F)


@final
class TextEncoder(nn.Module):
    """The mean of the last layer over the tokens of a text."""

    tokens: Tensor

    def __init__(self, model: Any, tokenizer: Any, content: bytes) -> None:
        super().__init__()
        self.part = "text_model" if hasattr(model, "text_model") else ""
        self.model, self.tokenizer = getattr(model, self.part) if self.part else model, tokenizer
        longest = int(getattr(self.model.config, "max_position_embeddings", LONGEST) or LONGEST)
        self.longest = min(int(tokenizer.model_max_length), longest, LONGEST)
        self.register_buffer("tokens", torch.frombuffer(bytearray(content), dtype=torch.uint8))  # for the checksum

    def forward(self, x: Tensor) -> Tensor:
        texts = [text or " " for text in as_texts(x.cpu())]
        read = self.tokenizer(texts, padding=True, truncation=True, max_length=self.longest, return_tensors="pt")
        ids, seen = (read[name].long().to(self.tokens.device) for name in ("input_ids", "attention_mask"))
        if ids.shape[1] == 0:  # texts without a single token, whose mean over tokens is zero
            ids, seen = ids.new_full((len(x), 1), self.tokenizer.pad_token_id), seen.new_zeros(len(x), 1)
        hidden: Tensor = self.model(input_ids=ids, attention_mask=seen).last_hidden_state
        mask = seen.unsqueeze(2).to(hidden.dtype)  # (N, T) -> (N, T, 1)
        return (hidden * mask).sum(1) / mask.sum(1).clamp_min(1.0)  # (N, T, F) -> (N, F)


def load_transformer(name: str) -> Loaded:
    """The model of this name, or in this folder."""
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the backbone {name} needs the package transformers; "
            "install it with pip install metareplay[backbones], or give module:function"
        ) from error
    transformers.utils.logging.disable_progress_bar()  # of loading; downloads still show theirs
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model, info = transformers.AutoModel.from_pretrained(
                name,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
                dtype=torch.float32,
                local_files_only=is_offline(),
            )
    except Exception as error:  # of many kinds
        raise ConfigError(
            f"the backbone {name}: transformers cannot load this model ({words_of(error)}); give a name or folder "
            "of a model in safetensors, a registered backbone, or module:function"
        ) from error
    if missing := sorted(key for key in info["missing_keys"] if not key.startswith(UNUSED)):
        raise ConfigError(
            f"the backbone {name}: the model lacks the weights {missing[0]!r} and {len(missing) - 1} more, which "
            "would be random; choose a complete one"
        )
    if model.main_input_name != "pixel_values" and not hasattr(model, "vision_model"):
        return Loaded(_text_encoder(name, model, transformers))
    size, mean, std = _preparation(name, model.config, transformers)
    return Loaded(ImageEncoder(model), size, mean, std)


def _text_encoder(name: str, model: Any, package: Any) -> TextEncoder:
    """A model that reads texts, with the tokenizer stored next to it; other models are refused."""
    kind = f"the backbone {name} is a {type(model).__name__}"
    if model.main_input_name != "input_ids" or getattr(model.config, "is_encoder_decoder", False):
        raise ConfigError(
            f"{kind}, whose inputs are {model.main_input_name}; choose an image encoder (ViT, DINOv2, ConvNeXt) or "
            "a text encoder (BERT, MiniLM)"
        )
    try:
        tokenizer = package.AutoTokenizer.from_pretrained(
            name, trust_remote_code=False, local_files_only=is_offline(), use_fast=True
        )
        content = tokenizer.backend_tokenizer.to_str().encode()
    except Exception as error:  # of many kinds
        raise ConfigError(
            f"{kind}, but its tokenizer cannot be loaded ({words_of(error)}); a text encoder needs its tokenizer.json"
        ) from error
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    return TextEncoder(model, tokenizer, content)


def _preparation(name: str, config: Any, package: Any) -> tuple[int | None, tuple[float, ...], tuple[float, ...]]:
    """Size, mean and standard deviation of images, as stored next to the model; otherwise from its configuration."""
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

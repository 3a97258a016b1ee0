"""Inputs as features of a frozen backbone: computed once, before anything is learned from them.

A run's benchmark and an estimator's inputs go through an ``Extractor``; learner, statistics and predictor see features.
Of a backbone with adapters, which is part of the main network, they see the inputs: images with pixels from 0 to 1.
"""

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from metareplay.benchmarks.base import Benchmark, Task, TaskData
from metareplay.data.feature_cache import cached_features
from metareplay.errors import CheckpointError, ConfigError, DataError
from metareplay.learner.config import RunConfig
from metareplay.nets.backbones import (
    Backbone,
    BackboneSettings,
    FeatureSettings,
    find_backbone,
    has_backbone,
    is_adapted,
    shared_backbone,
    split_name,
)
from metareplay.scaling import Scaling
from metareplay.written_text import as_texts

FACTS = "features"
"""The name of what a model stores about its backbone, and the prefix of the names of its tensors."""
BRIGHTEST = 1.5
"""Images with larger values have pixels from 0 to 255, others from 0 to 1."""


@dataclass(frozen=True)
class Extractor:
    """From a learner's inputs, standardised as they may be, to standardised features, or to what the network reads."""

    backbone: Backbone
    input_shape: tuple[int, ...]
    width: int
    """The number of features; 0 if they are computed in the main network."""
    undo: Scaling
    """How the inputs were standardised; the backbone sees them as they were before."""
    full: float
    """The value of a white pixel before that."""
    scaling: Scaling
    """Of the features, by those of the first task."""
    power: float = 1.0
    """To which features are raised before that."""

    @classmethod
    def of(
        cls, backbone: Backbone, first: Tensor, undo: Scaling, *, adapted: bool = False, standardise: bool = True
    ) -> "Extractor":
        """By the inputs of the first task (N, ...)."""
        undo = Scaling({name: undo.tensors[name].clone() for name in ("x_mean", "x_scale") if name in undo.tensors})
        shape = tuple(first.shape[1:])
        raw = _undone(undo, first)
        full = 255.0 if len(shape) == 3 and float(raw.max()) > BRIGHTEST else 1.0
        if backbone.mirror and len(shape) != 3:
            raise ConfigError(
                f"features.mirror=true needs images of shape (C, H, W), but inputs have shape {shape}; leave it out"
            )
        width, power = 0 if adapted else backbone.features(raw[:2] / full).shape[1], backbone.loaded.power
        plain = cls(backbone, shape, width, undo, full, Scaling({}), power)
        if adapted or not standardise:
            return plain
        features = plain.features(first)
        return replace(plain, scaling=Scaling.of(features, features, regression=False, alike=True))

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Of one input of the learner."""
        return (self.width,) if self.width else self.input_shape

    def features(self, x: Tensor, *, keep: bool = True) -> Tensor:
        """Features (N, F) of inputs (N, ...); with ``keep`` they are read from the cache, or written to it."""
        if tuple(x.shape[1:]) != self.input_shape:
            raise DataError(f"inputs have shape {tuple(x.shape[1:])}, but this model learned {self.input_shape}")
        if not self.width:
            raw = _undone(self.undo, x) / self.full
            if self.backbone.reads_texts:
                as_texts(raw)  # refuses what is none
            return raw
        views = (x, x.flip(-1)) if self.backbone.mirror else (x,)  # (N, C, H, W), left and right exchanged
        of_views = [self._cached(view) if keep else self._compute(view) for view in views]
        mean = sum(of_views[1:], start=of_views[0]) / len(views)  # (N, F)
        return self.scaling.x(mean if self.power == 1 else mean.sign() * mean.abs().pow(self.power))

    def _cached(self, x: Tensor) -> Tensor:
        """Read or written block by block; mirror images are inputs as any others."""
        parts: list[Tensor] = []
        for part in cached_features(self._key(), x.float(), self._compute):
            parts.append(part)
            _tell(self.backbone.name, sum(map(len, parts)), len(x))
        return torch.cat(parts)

    def _compute(self, x: Tensor) -> Tensor:
        return self.backbone.features(_undone(self.undo, x) / self.full)

    def _key(self) -> str:
        digest = hashlib.sha256(f"{self.backbone.checksum} {self.full}".encode())
        for name, tensor in sorted(self.undo.tensors.items()):
            digest.update(name.encode())
            digest.update(tensor.contiguous().numpy().tobytes())
        return digest.hexdigest()[:16]

    def facts(self) -> dict[str, Any]:
        """What a model stores besides ``tensors``."""
        return {
            "input_shape": list(self.input_shape),
            "width": self.width,
            "full": self.full,
            "power": self.power,
            "checksum": self.backbone.checksum,
        }

    def tensors(self) -> dict[str, Tensor]:
        """For the store, under names of their own."""
        both = {"undo": self.undo, "scaling": self.scaling}
        return {
            f"{FACTS}.{kind}.{name}": part for kind, scaling in both.items() for name, part in scaling.tensors.items()
        }


def stored_extractor(config: RunConfig, inputs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Extractor | None:
    """The extractor of a stored model; None if it has no backbone. One with other weights is refused."""
    facts = inputs.get(FACTS)
    if has_backbone(config.network) != (facts is not None):
        raise CheckpointError(f"the model is damaged: what it stores about features does not fit {config.network}")
    if facts is None:
        return None
    backbone = backbone_of(config)
    if backbone.checksum != facts["checksum"]:
        raise CheckpointError(
            f"the backbone {backbone.name} has different weights (checksum {backbone.checksum}) from those the model "
            f"was trained with ({facts['checksum']}); restore it, or train again"
        )
    undo, scaling = (_under(f"{FACTS}.{kind}.", tensors) for kind in ("undo", "scaling"))
    shape, width = tuple(int(size) for size in facts["input_shape"]), int(facts["width"])
    if is_adapted(config.network) != (width == 0):
        raise CheckpointError(f"the model is damaged: what it stores about features does not fit {config.network}")
    power = float(facts.get("power", 1.0))  # models of version 0.2 have none
    return Extractor(backbone, shape, width, undo, float(facts["full"]), scaling, power)


def without_features(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What a model stores about a user's files alone."""
    return {name: value for name, value in inputs.items() if name != FACTS}


def refuse_texts(inputs: Mapping[str, Any], network: str | None) -> None:
    """Refuse texts unless the network has a backbone, which may be one that reads them."""
    texts = [entry["name"] for entry in inputs.get("columns", ()) if "text" in entry]
    if texts and not (network and has_backbone(network)):
        raise ConfigError(
            f"column {texts[0]!r} holds texts, which network={network or 'default'} cannot read; use a text "
            "encoder, e.g. network=features:FOLDER+mlp-100 with the folder of a transformers model (docs/backbones.md)"
        )


def backbone_of(config: RunConfig) -> Backbone:
    """The backbone of a network; one that is part of the main network is the same object there."""
    settings = config.get(BackboneSettings)
    if is_adapted(config.network):
        return shared_backbone(config.network, settings)
    return find_backbone(config.network, settings, config.get(FeatureSettings))


def backbone_for(inputs: Mapping[str, Any], config: RunConfig) -> Backbone:
    """The backbone of a network, if it reads what a user's files hold."""
    backbone = backbone_of(config)
    if backbone.reads_texts and inputs.get("kind", "table") == "table" and inputs.get("columns"):
        names = [entry["name"] for entry in inputs["columns"]]
        if not any("text" in entry for entry in inputs["columns"]):
            raise ConfigError(
                f"the backbone {backbone.name} reads texts; name the column that holds them with --text "
                f"(the inputs are {', '.join(map(repr, names[:20]))})"
            )
    return backbone


def with_features(benchmark: Benchmark, config: RunConfig) -> Benchmark:
    """The same tasks with features as inputs, or with what a backbone in the network reads, if there is one."""
    refuse_texts(benchmark.inputs, config.network)
    if not has_backbone(config.network) or FACTS in benchmark.inputs:
        return benchmark
    backbone = backbone_for(benchmark.inputs, config)
    undo = benchmark.scaling if "x_mean" in benchmark.scaling.tensors else benchmark.pixels
    extractor = Extractor.of(backbone, benchmark[0].train.x, undo, adapted=is_adapted(config.network))

    def changed(data: TaskData) -> TaskData:
        return TaskData(extractor.features(data.x), data.y)

    def make_task(index: int) -> Task:
        task = benchmark[index]
        return replace(task, train=changed(task.train), test=make_test(index))

    @cache
    def make_test(index: int) -> TaskData:
        return changed(benchmark.test(index))

    return replace(
        benchmark,
        input_shape=extractor.output_shape,
        make_task=make_task,
        make_test=make_test,
        inputs={**benchmark.inputs, FACTS: extractor.facts()},
        scaling=Scaling({**benchmark.scaling.tensors, **extractor.tensors()}),
    )


def same_inputs(first: RunConfig, second: RunConfig) -> bool:
    """Whether two configurations turn the same data into the same inputs."""
    return _view(first) == _view(second)


def _view(config: RunConfig) -> object:
    if not has_backbone(config.network):
        return None
    return is_adapted(config.network), split_name(config.network)[0], config.get(BackboneSettings).model_dump()


def _undone(scaling: Scaling, x: Tensor) -> Tensor:
    return x * scaling.tensors["x_scale"] + scaling.tensors["x_mean"] if "x_mean" in scaling.tensors else x


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> Scaling:
    return Scaling({name.removeprefix(prefix): part for name, part in tensors.items() if name.startswith(prefix)})


def _tell(name: str, done: int, total: int) -> None:
    """Progress, for people at a terminal: thousands of images take minutes."""
    if sys.stderr.isatty() and total > 1000:
        end = "\r" if done < total else "\r\x1b[K"
        print(f"features by {name}: {done:,} of {total:,} inputs", end=end, file=sys.stderr, flush=True)

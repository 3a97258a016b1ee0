"""The networks of each task: their outputs and features under weight samples, the same ones each time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil

import torch
from torch import Generator, Tensor

from metareplay.inference.criteria.base import FeatureRequest, Features
from metareplay.inference.drawn_weights import DrawnWeights
from metareplay.inference.predictive import WeightSamples, log_likelihoods, log_predictive, predictive_outputs
from metareplay.inference.remembered import Remembered
from metareplay.inference.settings import InferenceSettings
from metareplay.model import ContinualModel
from metareplay.nets.features import layer_features
from metareplay.nets.moments import MomentsSettings
from metareplay.posteriors.families.laplace import LinearisedGaussian
from metareplay.posteriors.families.mixture import members_of
from metareplay.seeding import generator_for

SCORED_AT_ONCE = 500
"""Inputs whose log-likelihoods are held at once, so that they fit the cache in float64."""


class TaskNetworks:
    """Runs a model's networks; answers differ only by what training changed."""

    def __init__(self, model: ContinualModel, settings: InferenceSettings, seed: int) -> None:
        self.model, self.settings, self.seed = model, settings, seed
        self.drawn = DrawnWeights()
        self.memory: Remembered | None = None
        """Of results for the same inputs, while there is one."""

    @contextmanager
    def remembering(self) -> Iterator[None]:
        """Results for the same inputs are used again; the model must not change meanwhile, nor several threads ask."""
        self.memory = Remembered()
        try:
            yield
        finally:
            self.memory = None

    def outputs(self, x: Tensor, task: int, *, every_output: bool = False, samples: int | None = None) -> Tensor:
        """Outputs of one task's networks (S, N, C), with ``every_output`` those of all heads."""
        settings = self.settings
        if self.memory is not None and not every_output and samples in (None, settings.samples):
            known: Tensor | None = self.memory.take("outputs", task, self.memory.mark(x))
            if known is not None:
                return known
        return predictive_outputs(
            self.model,
            x,
            task,
            samples or settings.samples,
            generator=self._generator(task),
            batch_size=settings.batch_size,
            every_output=every_output,
            moments=self._by_moments(),
            autocast=settings.autocast,
            drawn=self.drawn,
        )

    def _by_moments(self) -> bool:
        return isinstance(self.settings, MomentsSettings) and self.settings.predictive == "moments"

    def samples(
        self, task: int, count: int | None = None, convert: Callable[[Tensor], Tensor] | None = None
    ) -> WeightSamples:
        """The weight samples that ``outputs`` uses, to be run a few at a time."""
        return WeightSamples(
            self.model,
            task,
            count or self.settings.samples,
            generator=self._generator(task),
            columns=self.model.heads[task],
            batch_size=self.settings.batch_size,
            autocast=self.settings.autocast,
            convert=convert,
            drawn=self.drawn,
        )

    def log_other(self, x: Tensor, task: int) -> Tensor:
        """log p(none of the task's classes): the probability of all its auxiliary outputs, -inf without any; (N,)."""
        head, columns = self.model.heads[task], self.model.training_columns(task)
        outputs = self.outputs(x, task, every_output=True)  # (S, N, O)
        self._keep_for_the_classes(x, task, outputs[..., head])
        competing = outputs[..., columns]  # (S, N, C + A)
        parts = [log_predictive(log_likelihoods(part)) for part in competing.split(SCORED_AT_ONCE, dim=1)]
        return torch.cat(parts)[:, head.stop - head.start :].logsumexp(1)  # (N, C + A) -> (N, A) -> (N,)

    def _keep_for_the_classes(self, x: Tensor, task: int, outputs: Tensor) -> None:
        """Those of a task's classes (S, N, C) are the same numbers as ``outputs`` gives, unless outputs are sampled."""
        if self.memory is None or self._by_moments() or isinstance(self.model.posterior(task), LinearisedGaussian):
            return
        self.memory.put("outputs", task, self.memory.mark(x), value=outputs.contiguous(), numbers=outputs.numel())

    def features(self, x: Tensor, task: int, request: FeatureRequest) -> Features:
        """Features of inputs in a task's networks, always with the same weight samples: (S, N, F) by layer."""
        model, generator = self.model, generator_for(self.seed, "features", self.model.lineage.number_of(task))
        posterior = model.posterior(task)
        members = members_of(posterior)[1]
        with torch.no_grad():
            samples = model.family.weight_sets or ceil(request.samples / members) * members
            weights = posterior.rsample(samples, generator=generator)  # (S, W)
        return layer_features(
            model.network,
            model.spec,
            weights,
            x,
            model.buffers(task),
            layers=request.layers,
            pooled=request.pooled,
            batch_size=self.settings.batch_size,
            generator=generator,
        )

    def _generator(self, task: int) -> Generator:
        return generator_for(self.seed, "evaluate", self.model.lineage.number_of(task))

"""Task statistics in a form that can be traced: what does not depend on the inputs is computed before."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from metareplay.inference.statistics.combine import Combination
from metareplay.inference.statistics.density import PRECISE, InputDensity
from metareplay.inference.statistics.edges import EdgeDensities, EdgeScale, slopes_together
from metareplay.inference.statistics.evidence import Descriptions, TaskEvidence
from metareplay.inference.statistics.spaces import Gaussian, Space


@dataclass(frozen=True)
class WholeDensity(InputDensity):
    """Compares all inputs together."""

    def costs(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """As ``InputDensity.costs``."""
        return self._costs(x.flatten(1).to(self.mean.dtype))


class WholeScale(EdgeScale):
    """Describes all images together."""

    def _slopes(self, images: Tensor) -> Tensor:
        return slopes_together(images)


@dataclass(frozen=True)
class WholeGaussian(Gaussian):
    """Compares all features with all means together."""

    def distances(self, features: Tensor) -> Tensor:
        """As ``Gaussian.distances``: (N, F) -> (N, C)."""
        white = features.float() @ self.factor  # (N, F)
        return 0.5 * (white.unsqueeze(1) - self.means).square().sum(2, dtype=torch.float64)  # (N, C, F) -> (N, C)


@dataclass(frozen=True)
class ReadySpace(Space):
    """Has the Gaussians of single tasks precomputed."""

    owns: Mapping[int, Gaussian]
    backgrounds: Mapping[int, Gaussian]

    def own(self, task: int) -> Gaussian:
        """As ``Space.own``."""
        return self.owns[task]

    def background(self, task: int) -> Gaussian:
        """As ``Space.background``."""
        return self.backgrounds[task]


@dataclass(frozen=True)
class WholeCombination(Combination):
    """Combines the evidence on all inputs together."""

    def scores(self, evidence: TaskEvidence) -> Tensor:
        """As ``Combination.scores``: (T, N)."""
        odds = self.log_odds(evidence.terms())  # (T, T, N)
        others = 1 - torch.eye(len(odds), dtype=odds.dtype).unsqueeze(2)  # (T, T, 1)
        lost = (-odds).clamp_min(0) + torch.log1p((-odds.abs()).exp())  # -log sigmoid
        return (lost * others).sum(1)  # (T, T, N) -> (T, N)

    def compressed(self, gaps: Tensor) -> Tensor:
        """As ``Combination.compressed``, by functions that runtimes have in float64."""
        return gaps.sign() * (gaps.abs() + (gaps.square() + 1).sqrt()).log()


def traceable(descriptions: Descriptions) -> Descriptions:
    """The same descriptions, ready to be traced."""
    inputs, spaces = [_density(each) for each in descriptions.inputs], [_ready(each) for each in descriptions.spaces]
    if descriptions.edges is None:
        return Descriptions(inputs, spaces)
    densities = [None if each is None else _density(each) for each in descriptions.edges.densities]
    return Descriptions(inputs, spaces, EdgeDensities(WholeScale(*descriptions.edges.scale), densities))


def whole(combination: Combination) -> WholeCombination:
    """The same combination."""
    return WholeCombination(*(getattr(combination, entry.name) for entry in fields(Combination)))


def _density(density: InputDensity) -> WholeDensity:
    values = [getattr(density, entry.name) for entry in fields(InputDensity)]
    wide = density.mean.shape[1] > PRECISE
    return WholeDensity(*(value.float() if wide else value for value in values))


def _ready(space: Space) -> ReadySpace:
    values = {entry.name: getattr(space, entry.name) for entry in fields(Space)}
    owns, backgrounds = (
        {task: _whole_gaussian(make(task)) for task in space.tasks} for make in (space.own, space.background)
    )
    return ReadySpace(**values | {"pooled": _whole_gaussian(space.pooled)}, owns=owns, backgrounds=backgrounds)


def _whole_gaussian(gaussian: Gaussian) -> WholeGaussian:
    return WholeGaussian(*(getattr(gaussian, entry.name) for entry in fields(Gaussian)))

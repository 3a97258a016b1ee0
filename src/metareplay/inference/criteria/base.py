"""Task-inference criteria: the contract and the registry [Henning2021, SM sec. Task inference].

A criterion judges in two steps. ``score`` sees the predictive samples of one task, a few inputs at a time; ``compare`` sees what that made
of every task, together with features of the tasks' networks and what each task stored of itself, and gives scores (T, B): the lowest
wins. What a task stores is made by ``fit``, once, while the task's data are there. Most criteria need the first step alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import torch
from torch import Generator, Tensor

from metareplay.benchmarks.base import Problem, TaskData
from metareplay.errors import ConfigError
from metareplay.model import ContinualModel
from metareplay.parts import Part, Registry
from metareplay.settings import Settings

Stored = Mapping[str, Tensor]
"""What a criterion stores of one task, by names of its own: small tensors, never examples."""
Features = Mapping[str, Tensor]
"""Outputs of layers under some weight samples, by the layers' names: (S, B, F) each."""
AnySettings = TypeVar("AnySettings", bound=Settings)


@dataclass(frozen=True)
class FeatureRequest:
    """Which features a criterion looks at."""

    layers: tuple[str, ...] = ()
    """Names of submodules whose outputs they are; none: what enters each layer with weights, as ``nets/features.py`` finds it."""
    samples: int = 1
    """Weight samples under which they are computed; of point estimates there are as many as the posterior has."""
    pooled: bool = True
    """Whether feature maps (B, C, H, W) are averaged over positions; else they are flattened."""


@dataclass(frozen=True)
class Evidence:
    """What a criterion compares the tasks by, for some inputs."""

    said: Sequence[Tensor]
    """What ``Criterion.score`` made of each task's predictive samples: T times (B, ...); empty without one."""
    heads: Sequence[slice]
    """Which of the network's outputs are each task's."""
    settings: Settings
    features: Sequence[Features] = ()
    """For each task those of its networks, if the criterion asks for any."""
    stored: Sequence[Stored] = ()
    """What the criterion stored of each task."""

    def find(self, settings: type[AnySettings]) -> AnySettings:
        """The values of a criterion's settings; their defaults where nobody set them."""
        return self.settings if isinstance(self.settings, settings) else settings()


@dataclass(frozen=True)
class LearnedTask:
    """What a criterion may look at when a task has just been learned, while its data are there."""

    model: ContinualModel
    task: int
    data: TaskData
    settings: Settings
    stored: tuple[Stored, ...]
    """What the criterion stored of each earlier task; nothing of one that was learned without the criterion."""
    features: Callable[[Tensor, int], Features]
    """Features of some inputs in the networks of a task, this one or an earlier one."""
    generator: Generator


def _as_they_are(evidence: Evidence) -> Tensor:
    return torch.stack(list(evidence.said))  # (T, B)


@dataclass(frozen=True, kw_only=True)
class Criterion(Part):
    """A way to tell which task an input belongs to, with what it needs."""

    phrase: str = "a criterion"
    description: str
    """What the chosen task has: ``lowest entropy of the posterior predictive``."""
    score: Callable[[Tensor], Tensor] | None = None
    """What a task says of itself: log-likelihoods of classes or outputs of a regression (S, B, C) -> (B, ...); None: nothing."""
    compare: Callable[[Evidence], Tensor] = _as_they_are
    """All that there is to know -> scores (T, B), the lowest wins; by default what the tasks say of themselves."""
    needs_samples: bool = False
    """True where a single weight sample (a point estimate) says nothing."""
    problems: tuple[Problem, ...] = ("classification",)
    logarithmic: bool = True
    """Whether scores are never negative and differ by orders of magnitude, so that their logarithms say how far tasks are apart."""
    features: FeatureRequest | None = None
    fit: Callable[[LearnedTask], Sequence[Stored]] | None = None
    """Called once when a task has been learned; returns what to store of every task so far, the new one last and never empty."""

    @property
    def alone(self) -> bool:
        """Whether a task's score is what the task says of itself, whatever the other tasks say."""
        return self.compare is _as_they_are


class Contest(NamedTuple):
    """A criterion at work: with all that it looks at besides what the tasks say of themselves."""

    criterion: Criterion
    evidence: Evidence

    def scores(self, said: Sequence[Tensor]) -> Tensor:
        """From what each task says of itself, T times (B, ...), to scores (T, B)."""
        return self.criterion.compare(replace(self.evidence, said=said))


CRITERIA: Registry[Criterion] = Registry("criterion", "chooses tasks by")
register_criterion = CRITERIA.register


def criteria_for(problem: Problem, *, weight_sets: int | None = None) -> list[Criterion]:
    """The criteria of a problem, without those that say nothing where a posterior has a single set of weights."""
    found = [criterion for criterion in CRITERIA.values() if problem in criterion.problems]
    return [criterion for criterion in found if not (weight_sets == 1 and criterion.needs_samples)]


def criterion_named(name: str, problem: Problem = "classification", *, weight_sets: int | None = None) -> Criterion:
    """The criterion with that name, refused where it cannot tell tasks apart."""
    criterion, usable = CRITERIA.named(name), criteria_for(problem, weight_sets=weight_sets)
    choices = ", ".join(each.name for each in usable)
    if problem not in criterion.problems:
        raise ConfigError(
            f"criterion={name!r} is for {' and '.join(criterion.problems)}, and this is {problem}; choose one of {choices}"
        )
    if criterion not in usable:
        raise ConfigError(
            f"criterion={name!r} compares weight samples, but a Dirac posterior has only one; "
            f"{f'choose one of {choices}' if usable else 'name the task'}, or a method with several, such as pr-bbb or pr-ensemble"
        )
    return criterion

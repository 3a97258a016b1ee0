"""Task-inference criteria: the contract and the registry [Henning2021, SM sec. Task inference].

A criterion works in two steps. ``score`` sees the predictive samples of one task, a few inputs at a time; ``compare``
sees the result for every task, together with features of the tasks' networks and the stored task statistics, and
returns scores (T, B): the lowest wins. ``fit`` computes the statistics of a task, once, while its data are available.
Most criteria need only the first step.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import torch
from torch import Generator, Tensor

from metareplay.benchmarks.base import Problem, TaskData
from metareplay.errors import ConfigError, listed
from metareplay.inference.statistics.combine import Combination
from metareplay.inference.statistics.evidence import Stored, TaskEvidence
from metareplay.model import ContinualModel
from metareplay.parts import Part, Registry
from metareplay.settings import Settings

Features = Mapping[str, Tensor]
"""Outputs of layers for some weight samples, by layer name: (S, B, F) each."""
AnySettings = TypeVar("AnySettings", bound=Settings)


@dataclass(frozen=True)
class FeatureRequest:
    """Which features a criterion looks at."""

    layers: tuple[str, ...] = ()
    """Submodules whose outputs are used; if empty, the inputs of every layer with weights (``nets/features.py``)."""
    samples: int = 1
    """Weight samples for which they are computed; with point estimates, as many as the posterior has."""
    pooled: bool = True
    """Whether feature maps (B, C, H, W) are averaged over positions; otherwise they are flattened."""


@dataclass(frozen=True)
class Comparison:
    """Inputs compared with the statistics of all tasks."""

    evidence: TaskEvidence
    combination: Combination
    stored: Sequence[Stored]
    """What is stored about each task."""


@dataclass(frozen=True)
class Evidence:
    """What a criterion compares the tasks by, for some inputs."""

    task_scores: Sequence[Tensor]
    """What ``Criterion.score`` returned for each task: T times (B, ...); empty if the criterion has no ``score``."""
    heads: Sequence[slice]
    """Each task's slice of the network's outputs."""
    settings: Settings
    features: Sequence[Features] = ()
    """Features of each task's networks, if the criterion requests any."""
    stored: Sequence[Stored] = ()
    """What the criterion stored about each task."""
    log_other: Sequence[Tensor] = ()
    """log p(none of the task's classes) under each task's networks, T times (B,), if the criterion needs it."""
    comparison: Comparison | None = None
    """The inputs compared with the tasks' statistics, if the criterion reads these."""
    log_tasks: Tensor | None = None
    """log p(task | input) by the model's network that infers tasks (T, B), if the criterion asks it."""

    @property
    def compared(self) -> Comparison:
        """The comparison, for criteria that read statistics."""
        if self.comparison is None:
            raise ConfigError("this criterion needs task statistics; learn with statistics.collect=true")
        return self.comparison

    def find(self, settings: type[AnySettings]) -> AnySettings:
        """The criterion's settings; the defaults if they were not set."""
        return self.settings if isinstance(self.settings, settings) else settings()


@dataclass(frozen=True)
class LearnedTask:
    """What a criterion can use when a task has just been learned and its data are still available."""

    model: ContinualModel
    task: int
    data: TaskData
    settings: Settings
    stored: tuple[Stored, ...]
    """What the criterion stored about each earlier task; empty for a task that was learned without it."""
    features: Callable[[Tensor, int], Features]
    """Features of some inputs in the networks of this task or an earlier one."""
    generator: Generator


def _unchanged(evidence: Evidence) -> Tensor:
    return torch.stack(list(evidence.task_scores))  # (T, B)


@dataclass(frozen=True, kw_only=True)
class Criterion(Part):
    """A way to tell which task an input belongs to, with what it needs."""

    phrase: str = "a criterion"
    description: str
    """What distinguishes the chosen task: ``lowest entropy of the posterior predictive``."""
    score: Callable[[Tensor], Tensor] | None = None
    """Scores one task: log-likelihoods of classes, or regression outputs, (S, B, C) -> (B, ...); None: not needed."""
    compare: Callable[[Evidence], Tensor] = _unchanged
    """All the evidence -> scores (T, B), the lowest wins; by default the tasks' own scores."""
    needs_samples: bool = False
    """Whether a single weight sample (a point estimate) is uninformative."""
    problems: tuple[Problem, ...] = ("classification",)
    logarithmic: bool = True
    """Whether scores are never negative and span orders of magnitude, so that they are compared on a log scale."""
    features: FeatureRequest | None = None
    needs_auxiliary: bool = False
    """Whether it needs models that were trained with auxiliary outputs (``training.other``, ``training.rotations``)."""
    asks_network: bool = False
    """Whether it needs models with a network that infers tasks."""
    reads_statistics: bool = False
    """Whether it compares inputs with the statistics that every model stores about its tasks."""
    reads_distances: bool = False
    """Whether it also needs distances by single tasks' covariances of features, which take longer."""
    reads_outputs: bool = True
    """Whether, of the statistics, it needs the costs of all tasks' outputs; otherwise, with many tasks, those of tasks
    that are not short-listed for an input are NaN."""
    probabilities: Callable[[Evidence, Tensor], Tensor] | None = None
    """Evidence and scores (T, B) -> calibrated probabilities of the tasks (B, T), if it has any."""
    fit: Callable[[LearnedTask], Sequence[Stored]] | None = None
    """Called once when a task has been learned; returns what to store about every task so far, the new one last and
    never empty."""

    @property
    def alone(self) -> bool:
        """Whether a task's score does not depend on the other tasks."""
        return self.compare is _unchanged


class Contest(NamedTuple):
    """A criterion together with the evidence it compares tasks by, except the tasks' scores."""

    criterion: Criterion
    evidence: Evidence

    @property
    def needs_outputs(self) -> bool:
        """Whether tasks are compared by weight samples; otherwise these are needed only for the chosen task."""
        return self.criterion.score is not None

    def scores(self, task_scores: Sequence[Tensor] = ()) -> Tensor:
        """From what ``Criterion.score`` returned for each task, T times (B, ...), to scores (T, B)."""
        return self.criterion.compare(replace(self.evidence, task_scores=task_scores))

    def probabilities(self, scores: Tensor) -> Tensor | None:
        """Of the tasks: scores (T, N) -> (N, T); None if the criterion has none."""
        return None if self.criterion.probabilities is None else self.criterion.probabilities(self.evidence, scores)


CRITERIA: Registry[Criterion] = Registry("criterion", "chooses tasks by")
register_criterion = CRITERIA.register


def criteria_for(
    problem: Problem, *, weight_sets: int | None = None, auxiliary: bool = False, network: bool = False
) -> list[Criterion]:
    """The criteria for a problem, except those that are uninformative if a posterior has a single set of weights.

    ``auxiliary``: whether tasks have auxiliary outputs, so that criteria that need them apply; ``network``: whether the
    model has a network that infers tasks.
    """
    criteria = [
        criterion
        for criterion in CRITERIA.values()
        if problem in criterion.problems
        and (auxiliary or not criterion.needs_auxiliary)
        and (network or not criterion.asks_network)
    ]
    return [criterion for criterion in criteria if not (weight_sets == 1 and criterion.needs_samples)]


def criterion_named(
    name: str,
    problem: Problem = "classification",
    *,
    weight_sets: int | None = None,
    auxiliary: bool = False,
    network: bool = False,
) -> Criterion:
    """The criterion with that name; refused if it cannot tell tasks apart."""
    criterion = CRITERIA.named(name)
    usable = criteria_for(problem, weight_sets=weight_sets, auxiliary=auxiliary, network=network)
    choices = [choice.name for choice in usable]
    if problem not in criterion.problems:
        problems = " and ".join(criterion.problems)
        raise ConfigError(f"criterion={name!r} is for {problems}, and this is {problem}; choose {listed(choices)}")
    if criterion.needs_auxiliary and not auxiliary:
        raise ConfigError(
            f'criterion={name!r} needs outputs for "none of these classes", and this model was trained without them; '
            f"choose {listed(choices)}, or train again with training.other=1"
        )
    if criterion.asks_network and not network:
        raise ConfigError(
            f"criterion={name!r} asks a network that infers tasks, and this model has none; choose {listed(choices)}, "
            "or learn with the method hnet-tir"
        )
    if criterion not in usable:
        raise ConfigError(
            f"criterion={name!r} compares weight samples, but a point estimate has only one; "
            f"{f'choose {listed(choices)}' if choices else 'name the task'}, "
            "or a method with several, such as pr-bbb or pr-ensemble"
        )
    return criterion

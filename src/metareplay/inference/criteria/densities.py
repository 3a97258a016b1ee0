"""Criteria that compare inputs and features with what is stored about the tasks; they need no weight samples."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from metareplay.inference.criteria.base import Criterion, Evidence, register_criterion
from metareplay.inference.statistics.combine import differences
from metareplay.inference.statistics.evidence import Stored
from metareplay.inference.statistics.shortlist import listed_scores, pairwise


def _standardised(by_layer: Mapping[str, Tensor], kind: str, stored: Sequence[Stored]) -> Tensor:
    """The mean over layers of distances (T, B), each in units of its spread over the task's own held-out inputs."""
    total = torch.zeros_like(next(iter(by_layer.values())))  # (T, B)
    for layer, values in by_layer.items():
        scale = torch.stack([task[f"{kind}.{layer}"] for task in stored])  # (T, 2)
        total += (values - scale[:, :1]) / scale[:, 1:]
    return total / len(by_layer)


def mahalanobis(evidence: Evidence) -> Tensor:
    """The standardised distance to the nearest class of each task (T, B)."""
    compared = evidence.compared
    return (
        _standardised(compared.evidence.nearest, "nearest", compared.stored) if _has_layers(evidence) else pca(evidence)
    )


def relative(evidence: Evidence) -> Tensor:
    """The same, less the distance to the task as a whole [Ren et al. 2021]."""
    compared = evidence.compared
    return (
        _standardised(compared.evidence.relative, "relative", compared.stored)
        if _has_layers(evidence)
        else pca(evidence)
    )


def pairs(evidence: Evidence) -> Tensor:
    """The number of tasks that fit better, with a shared covariance, in the networks that know both; ties by how much.

    (T, B)
    """
    compared = evidence.compared.evidence
    if not compared.pooled:
        return pca(evidence)
    layers = list(compared.pooled.values())
    if compared.listed is None:
        wins = torch.stack([differences(values) for values in layers]).mean(0)  # (L, T, T, B) -> (T, T, B)
        lost, lead = (wins < 0).double().sum(1), wins.mean(1)  # (T, T, B) -> (T, B)
    else:
        lost, lead = pairwise(layers)
    return lost - 0.5 * lead / (1 + lead.abs())


def pca(evidence: Evidence) -> Tensor:
    """The log distance of the input to the principal subspace of each task's nearest class (T, B); no network."""
    return evidence.compared.evidence.residuals


def stats(evidence: Evidence) -> Tensor:
    """All evidence, weighted by how well it told held-out inputs of each new task apart from earlier tasks (T, B)."""
    compared = evidence.compared
    if compared.evidence.listed is None:
        return compared.combination.scores(compared.evidence)
    return listed_scores(compared.combination, compared.evidence)


def stats_probabilities(evidence: Evidence, scores: Tensor) -> Tensor:
    """Calibrated probabilities of the tasks: (T, B) -> (B, T)."""
    return evidence.compared.combination.probabilities(scores)


def _has_layers(evidence: Evidence) -> bool:
    return bool(evidence.compared.evidence.nearest)


for _name, _description, _compare in (
    ("mahalanobis", "smallest distance to the class means of its features", mahalanobis),
    ("relative", "the same, less the distance to the task as a whole", relative),
    ("pairs", "most pairwise wins by features, with a shared covariance", pairs),
    ("pca", "smallest distance to the principal directions of its inputs (no network)", pca),
):
    register_criterion(
        Criterion(
            name=_name,
            description=_description,
            compare=_compare,
            problems=("classification", "regression"),
            logarithmic=False,
            reads_statistics=True,
            reads_distances=_name in ("mahalanobis", "relative"),
            reads_outputs=False,
        )
    )
register_criterion(
    Criterion(
        name="stats",
        description="all statistics of inputs, features and outputs, weighted by how well they tell tasks apart",
        compare=stats,
        probabilities=stats_probabilities,
        problems=("classification", "regression"),
        reads_statistics=True,
        reads_outputs=False,
    )
)

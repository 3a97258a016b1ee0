"""How the task of an input is inferred. Importing this package registers the built-in criteria."""

from metareplay.inference.criteria.agreement import (
    disagreement,
    expected_entropy,
    knowledge_uncertainty,
    single_entropies,
)
from metareplay.inference.criteria.base import (
    CRITERIA,
    Criterion,
    Evidence,
    FeatureRequest,
    LearnedTask,
    criteria_for,
    criterion_named,
    register_criterion,
)
from metareplay.inference.criteria.densities import mahalanobis, pairs, pca, relative, stats
from metareplay.inference.criteria.entropy import lack_of_confidence, total_entropy
from metareplay.inference.criteria.gradient import GradSettings, entropy_gradient
from metareplay.inference.criteria.network import task_surprise
from metareplay.inference.criteria.other import probability_of_other
from metareplay.inference.criteria.outputs import energy, margin
from metareplay.inference.criteria.variance import predictive_variance

__all__ = [
    "CRITERIA",
    "Criterion",
    "Evidence",
    "FeatureRequest",
    "GradSettings",
    "LearnedTask",
    "criteria_for",
    "criterion_named",
    "disagreement",
    "energy",
    "entropy_gradient",
    "expected_entropy",
    "knowledge_uncertainty",
    "lack_of_confidence",
    "mahalanobis",
    "margin",
    "pairs",
    "pca",
    "predictive_variance",
    "probability_of_other",
    "register_criterion",
    "relative",
    "single_entropies",
    "stats",
    "task_surprise",
    "total_entropy",
]

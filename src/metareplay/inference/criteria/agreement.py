"""Criteria based on how weight samples differ: Agree and KU [Henning2021, SM sec. Task inference]."""

from torch import Tensor

from metareplay.inference.criteria.base import Criterion, register_criterion
from metareplay.inference.criteria.entropy import entropy, total_entropy


def disagreement(log_probs: Tensor) -> Tensor:
    """Mean over classes of the std of p(y | w, x) over weight samples: the criterion Agree; (S, B, C) -> (B,)."""
    return log_probs.exp().std(0, correction=0).mean(-1)


def single_entropies(log_probs: Tensor) -> Tensor:
    """H{p(y | w, x)} of each weight sample; (S, B, C) -> (S, B)."""
    return entropy(log_probs)


def expected_entropy(log_probs: Tensor) -> Tensor:
    """E_w H{p(y | w, x)}: the aleatoric part of SM eq. entropy:decomposition; (S, B, C) -> (B,)."""
    return single_entropies(log_probs).mean(0)


def knowledge_uncertainty(log_probs: Tensor) -> Tensor:
    """I(y, W): the epistemic part of SM eq. entropy:decomposition, the criterion KU; (S, B, C) -> (B,)."""
    return (total_entropy(log_probs) - expected_entropy(log_probs)).clamp_min(0.0)


register_criterion(
    Criterion(
        name="agree", description="strongest agreement between weight samples", score=disagreement, needs_samples=True
    )
)
register_criterion(
    Criterion(
        name="ku",
        description="lowest knowledge uncertainty (mutual information)",
        score=knowledge_uncertainty,
        needs_samples=True,
    )
)

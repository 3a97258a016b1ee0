"""Criteria that look at the outputs of each task's network under the weights that stand for its posterior."""

from torch import Tensor

from metareplay.inference.criteria.base import Criterion, Evidence, register_criterion


def energy(evidence: Evidence) -> Tensor:
    """-log sum exp of the outputs (T, B)."""
    return evidence.compared.evidence.energies


def margin(evidence: Evidence) -> Tensor:
    """-(largest output - second largest) (T, B)."""
    return evidence.compared.evidence.margins


register_criterion(
    Criterion(
        name="energy",
        description="largest log-sum-exp of the outputs (weight means)",
        compare=energy,
        logarithmic=False,
        reads_statistics=True,
    )
)
register_criterion(
    Criterion(
        name="margin",
        description="largest lead of the best output over the second (weight means)",
        compare=margin,
        logarithmic=False,
        reads_statistics=True,
    )
)

"""The criterion for regression: the lowest predictive variance [Henning2021, sec. Regression]."""

from torch import Tensor

from metareplay.inference.criteria.base import Criterion, register_criterion


def predictive_variance(outputs: Tensor) -> Tensor:
    """Variance of regression outputs over weight samples, summed over targets: (S, B, D) -> (B,)."""
    return outputs.double().var(0, correction=0).sum(-1)


register_criterion(
    Criterion(
        name="variance",
        description="lowest variance of the predicted targets (regression)",
        score=predictive_variance,
        needs_samples=True,
        problems=("regression",),
    )
)

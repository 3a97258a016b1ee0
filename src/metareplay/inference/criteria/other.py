"""The criterion Other: the task whose auxiliary outputs, "none of these classes", are least probable.

Auxiliary outputs come from ``training.other`` and ``training.rotations`` (``batches/auxiliary.py``).
"""

import torch
from torch import Tensor

from metareplay.inference.criteria.base import Criterion, Evidence, register_criterion


def probability_of_other(evidence: Evidence) -> Tensor:
    """p(none of the task's classes | D, x) under each task's networks: T times (B,) -> (T, B)."""
    return torch.stack(list(evidence.log_other)).exp()


register_criterion(
    Criterion(
        name="other",
        description='lowest probability of "none of these classes"',
        compare=probability_of_other,
        needs_auxiliary=True,
    )
)

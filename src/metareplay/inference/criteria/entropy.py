"""Criteria based on the posterior predictive: Ent and Conf [Henning2021, SM sec. Task inference].

They are computed in float64 from log-probabilities: in float32 a softmax saturates, and ties go to the first task.
"""

import torch
from torch import Tensor

from metareplay.inference.criteria.base import Criterion, register_criterion
from metareplay.inference.predictive import log_predictive


def entropy(log_p: Tensor) -> Tensor:
    """Entropy along the last dimension, accurate even where one class has nearly all the mass."""
    top, index = log_p.max(-1, keepdim=True)
    others = log_p.scatter(-1, index, -torch.inf)
    rest = others.logsumexp(-1, keepdim=True).exp()  # 1 - p_max without cancellation
    top = torch.where(rest < 0.5, torch.log1p(-rest), top)
    log_p = log_p.scatter(-1, index, top)
    return -(log_p.exp() * log_p.nan_to_num(neginf=0.0)).sum(-1) + 0.0  # no negative zeros


def total_entropy(log_probs: Tensor) -> Tensor:
    """H{p(y | D, x)}: the criterion Ent; (S, B, C) -> (B,)."""
    return entropy(log_predictive(log_probs))


def lack_of_confidence(log_probs: Tensor) -> Tensor:
    """1 - max_y p(y | D, x): the criterion Conf; (S, B, C) -> (B,)."""
    return unlikeliness(log_predictive(log_probs))


def unlikeliness(log_p: Tensor) -> Tensor:
    """1 - max_y p(y), accurate even where one class has nearly all the mass: (..., C) -> (...)."""
    others = log_p.scatter(-1, log_p.argmax(-1, keepdim=True), -torch.inf)
    return others.logsumexp(-1).exp()


register_criterion(Criterion(name="ent", description="lowest entropy of the posterior predictive", score=total_entropy))
register_criterion(
    Criterion(name="conf", description="highest probability of the predicted class", score=lack_of_confidence)
)

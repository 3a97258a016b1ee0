"""The criterion Grad: which task lowers the entropy of all tasks' mixed prediction fastest [Wortsman2020]."""

from itertools import pairwise
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from metareplay.inference.criteria.base import Criterion, Evidence, register_criterion
from metareplay.inference.criteria.entropy import entropy
from metareplay.inference.predictive import log_predictive
from metareplay.settings import Settings


class GradSettings(Settings):
    """Settings of the criterion grad."""

    group: ClassVar[str] = "inference"

    grad_steps: int = Field(
        1, ge=1, description="criterion grad: gradient steps on the mixing coefficients of the tasks"
    )
    grad_rate: float = Field(1.0, gt=0, description="criterion grad: size of these steps")


def entropy_gradient(evidence: Evidence) -> Tensor:
    """-log alpha after gradient steps on the tasks' mixing coefficients alpha (T times (B, C_t) -> (T, B)).

    The criterion Grad [Wortsman2020]: alpha starts uniform, and each step lowers the entropy of the mixture
    p = sum_t alpha_t p_t over the network's outputs. alpha = softmax(v), so that it stays a distribution;
    d H / d alpha_t = -sum_y p_t(y) (log p(y) + 1). Terms that are the same for all tasks of an input are left out of
    slopes and scores, so that the smallest differences are not lost.
    """
    log_predictives, heads, settings = evidence.task_scores, evidence.heads, evidence.find(GradSettings)
    shape = (len(heads), *log_predictives[0].shape[:-1], max(head.stop for head in heads))
    log_p = torch.full(shape, -torch.inf, dtype=torch.float64)  # (T, B, C)
    for task, (head, log_predictive_of_task) in enumerate(zip(heads, log_predictives, strict=True)):
        log_p[task, ..., head] = log_predictive_of_task
    v = torch.zeros(log_p.shape[:-1], dtype=torch.float64)  # (T, B)
    disjoint = all(left.stop <= right.start for left, right in pairwise(sorted(heads, key=lambda head: head.start)))
    for _ in range(settings.grad_steps):
        log_alpha = v.log_softmax(0)
        if disjoint:  # no two tasks share an output: p(y) = alpha_t p_t(y)
            slope = entropy(log_p) - v  # d H / d alpha_t = H_t - log alpha_t - 1; (T, B)
        else:
            log_mixture = (log_alpha.unsqueeze(-1) + log_p).logsumexp(0)  # sum_t alpha_t p_t(y); (T, B, C) -> (B, C)
            # the probabilities of a task sum to 1: any constant may be dropped
            below = log_mixture - log_mixture.amax(-1, keepdim=True)
            slope = -(log_p.exp() * below.nan_to_num(neginf=0.0)).sum(-1)  # d H / d alpha; (T, B, C) -> (T, B)
        alpha = log_alpha.exp()
        # chain rule through the softmax, without the term that all tasks share; (T, B)
        pull = alpha * slope - (alpha - alpha[0]) * (alpha * slope).sum(0)
        v = v - settings.grad_rate * pull
    return -v


register_criterion(
    Criterion(
        name="grad",
        description="steepest decrease of the entropy of the tasks' mixture",
        settings=(GradSettings,),
        score=log_predictive,
        compare=entropy_gradient,
        logarithmic=False,
    )
)

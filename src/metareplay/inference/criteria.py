"""Task-inference criteria: how uncertain a task is about an input [Henning2021, SM sec. Task inference].

Each takes the log-likelihoods of a task's weight samples (S, B, C) and returns scores (B,); the lowest score wins.
Everything is computed in float64 from log-probabilities: in float32 a softmax saturates, and ties fall to the first task.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from metareplay.errors import ConfigError
from metareplay.inference.predictive import log_predictive


@dataclass(frozen=True)
class Criterion:
    """A named score with what it needs."""

    name: str
    description: str
    score: Callable[[Tensor], Tensor]
    needs_samples: bool
    """True where a single weight sample (a deterministic posterior) says nothing."""


def _entropy(log_p: Tensor) -> Tensor:
    """Entropy along the last dimension, accurate also where one class has nearly all mass."""
    top, index = log_p.max(-1, keepdim=True)
    others = log_p.scatter(-1, index, -torch.inf)
    rest = others.logsumexp(-1, keepdim=True).exp()  # 1 - p_max without cancellation
    top = torch.where(rest < 0.5, torch.log1p(-rest), top)
    log_p = log_p.scatter(-1, index, top)
    return -(log_p.exp() * log_p.nan_to_num(neginf=0.0)).sum(-1) + 0.0  # no negative zeros


def total_entropy(log_probs: Tensor) -> Tensor:
    """H{p(y | D, x)}: the criterion Ent; (S, B, C) -> (B,)."""
    return _entropy(log_predictive(log_probs))


def lack_of_confidence(log_probs: Tensor) -> Tensor:
    """1 - max_y p(y | D, x): the criterion Conf; (S, B, C) -> (B,)."""
    log_p = log_predictive(log_probs)
    others = log_p.scatter(-1, log_p.argmax(-1, keepdim=True), -torch.inf)
    return others.logsumexp(-1).exp()


def disagreement(log_probs: Tensor) -> Tensor:
    """Mean over classes of the standard deviation of p(y | w, x) over weight samples: the criterion Agree; (S, B, C) -> (B,)."""
    return log_probs.exp().std(0, correction=0).mean(-1)


def expected_entropy(log_probs: Tensor) -> Tensor:
    """E_w H{p(y | w, x)}: the aleatoric part of SM eq. entropy:decomposition; (S, B, C) -> (B,)."""
    return _entropy(log_probs).mean(0)


def knowledge_uncertainty(log_probs: Tensor) -> Tensor:
    """I(y, W): the epistemic part of SM eq. entropy:decomposition, the criterion KU; (S, B, C) -> (B,)."""
    return (total_entropy(log_probs) - expected_entropy(log_probs)).clamp_min(0.0)


CRITERIA: dict[str, Criterion] = {
    criterion.name: criterion
    for criterion in (
        Criterion("ent", "lowest entropy of the posterior predictive", total_entropy, needs_samples=False),
        Criterion("conf", "highest probability of the predicted class", lack_of_confidence, needs_samples=False),
        Criterion("agree", "strongest agreement between weight samples", disagreement, needs_samples=True),
        Criterion("ku", "lowest knowledge uncertainty (mutual information)", knowledge_uncertainty, needs_samples=True),
    )
}


def criterion_named(name: str, *, deterministic: bool = False) -> Criterion:
    """The criterion with that name, refused where it means nothing."""
    if name not in CRITERIA:
        raise ConfigError(f"criterion={name!r} is unknown; choose one of {', '.join(CRITERIA)}")
    if deterministic and CRITERIA[name].needs_samples:
        usable = [known for known, criterion in CRITERIA.items() if not criterion.needs_samples]
        raise ConfigError(
            f"criterion={name!r} compares weight samples, but a Dirac posterior has only one; choose one of {', '.join(usable)} "
            "or a Bayesian method such as pr-bbb"
        )
    return CRITERIA[name]


def predictive_variance(outputs: Tensor) -> Tensor:
    """Variance of regression outputs over weight samples, summed over targets: (S, B, D) -> (B,)."""
    return outputs.double().var(0, correction=0).sum(-1)

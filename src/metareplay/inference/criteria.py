"""Task-inference criteria: how uncertain a task is about an input [Henning2021, SM sec. Task inference].

Each takes the log-likelihoods of a task's weight samples (S, B, C) and returns scores (B,); the lowest score wins. Only ``grad``
looks at all tasks together: what a task says of itself is then its prediction (B, C), and ``compare`` makes the scores.
Everything is computed in float64 from log-probabilities: in float32 a softmax saturates, and ties fall to the first task.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from metareplay.errors import ConfigError
from metareplay.inference.predictive import log_predictive
from metareplay.inference.settings import InferenceSettings

Compare = Callable[[Sequence[Tensor], Sequence[slice], InferenceSettings], Tensor]


def _as_they_are(scores: Sequence[Tensor], heads: Sequence[slice], settings: InferenceSettings) -> Tensor:
    return torch.stack(list(scores))  # (T, B)


@dataclass(frozen=True)
class Criterion:
    """A named score with what it needs."""

    name: str
    description: str
    score: Callable[[Tensor], Tensor]
    """What a task says of itself: (S, B, C) -> (B,)."""
    needs_samples: bool
    """True where a single weight sample (a point estimate) says nothing."""
    compare: Compare = _as_they_are
    """What all tasks say of themselves, and which of the network's outputs are whose -> scores (T, B)."""
    logarithmic: bool = True
    """Whether scores are never negative and differ by orders of magnitude, so that their logarithms say how far tasks are apart."""


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


def single_entropies(log_probs: Tensor) -> Tensor:
    """H{p(y | w, x)} of each weight sample; (S, B, C) -> (S, B)."""
    return _entropy(log_probs)


def expected_entropy(log_probs: Tensor) -> Tensor:
    """E_w H{p(y | w, x)}: the aleatoric part of SM eq. entropy:decomposition; (S, B, C) -> (B,)."""
    return single_entropies(log_probs).mean(0)


def knowledge_uncertainty(log_probs: Tensor) -> Tensor:
    """I(y, W): the epistemic part of SM eq. entropy:decomposition, the criterion KU; (S, B, C) -> (B,)."""
    return (total_entropy(log_probs) - expected_entropy(log_probs)).clamp_min(0.0)


def entropy_gradient(log_predictives: Sequence[Tensor], heads: Sequence[slice], settings: InferenceSettings) -> Tensor:
    """-log alpha after gradient steps on mixing coefficients alpha of the tasks' predictions (T times (B, C_t) -> (T, B)).

    The criterion Grad [Wortsman2020]: alpha starts uniform, and each step lowers the entropy of the mixture p = sum_t alpha_t p_t over the
    network's outputs. alpha = softmax(v), so that it stays a distribution; d H / d alpha_t = -sum_y p_t(y) (log p(y) + 1).
    What is the same for all tasks of an input is left out of slopes and scores, so that the smallest differences stay.
    """
    outputs = max(head.stop for head in heads)
    log_p = torch.full((len(heads), *log_predictives[0].shape[:-1], outputs), -torch.inf, dtype=torch.float64)  # (T, B, C)
    for task, (head, own) in enumerate(zip(heads, log_predictives, strict=True)):
        log_p[task, ..., head] = own
    v = torch.zeros(log_p.shape[:-1], dtype=torch.float64)  # (T, B)
    apart = all(one.stop <= other.start for one, other in pairwise(sorted(heads, key=lambda head: head.start)))
    for _ in range(settings.grad_steps):
        log_alpha = v.log_softmax(0)
        if apart:  # no two tasks share an output: p(y) = alpha_t p_t(y)
            slope = _entropy(log_p) - v  # d H / d alpha_t = H_t - log alpha_t - 1; (T, B)
        else:
            log_mixture = (log_alpha.unsqueeze(-1) + log_p).logsumexp(0)  # sum_t alpha_t p_t(y); (T, B, C) -> (B, C)
            below = log_mixture - log_mixture.amax(-1, keepdim=True)  # the probabilities of a task add up to 1: any constant may go
            slope = -(log_p.exp() * below.nan_to_num(neginf=0.0)).sum(-1)  # d H / d alpha; (T, B, C) -> (T, B)
        alpha = log_alpha.exp()
        pull = alpha * slope - (alpha - alpha[0]) * (alpha * slope).sum(0)  # chain rule through the softmax, less the same for all; (T, B)
        v = v - settings.grad_rate * pull
    return -v


CRITERIA: dict[str, Criterion] = {
    criterion.name: criterion
    for criterion in (
        Criterion("ent", "lowest entropy of the posterior predictive", total_entropy, needs_samples=False),
        Criterion("conf", "highest probability of the predicted class", lack_of_confidence, needs_samples=False),
        Criterion("agree", "strongest agreement between weight samples", disagreement, needs_samples=True),
        Criterion("ku", "lowest knowledge uncertainty (mutual information)", knowledge_uncertainty, needs_samples=True),
        Criterion(
            "grad",
            "steepest fall of the tasks' mixed entropy",
            log_predictive,
            needs_samples=False,
            compare=entropy_gradient,
            logarithmic=False,
        ),
    )
}


def criterion_named(name: str, *, weight_sets: int | None = None) -> Criterion:
    """The criterion with that name, refused where it means nothing: where a posterior has a single set of weights."""
    if name not in CRITERIA:
        raise ConfigError(f"criterion={name!r} is unknown; choose one of {', '.join(CRITERIA)}")
    if weight_sets == 1 and CRITERIA[name].needs_samples:
        usable = [known for known, criterion in CRITERIA.items() if not criterion.needs_samples]
        raise ConfigError(
            f"criterion={name!r} compares weight samples, but a Dirac posterior has only one; choose one of {', '.join(usable)} "
            "or a method with several, such as pr-bbb or pr-ensemble"
        )
    return CRITERIA[name]


def predictive_variance(outputs: Tensor) -> Tensor:
    """Variance of regression outputs over weight samples, summed over targets: (S, B, D) -> (B,)."""
    return outputs.double().var(0, correction=0).sum(-1)

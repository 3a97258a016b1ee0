"""How certain a mixture of several tasks' answers is.

Where tasks cannot be told apart, the mean of their answers is right more often, or closer, than each of them, and yet
less certain: a pool of calibrated answers is too cautious. By how much can be seen when a task has been learned. The
networks of all other tasks have never seen its examples, so their pooled answers to these are honest, and no example of
an old task is needed. Probabilities of labels are raised to a power above 1, and standard deviations of targets become
smaller, the more so the more evenly tasks contribute to an answer. Answers of one task, and of tasks without common
labels, stay as they are.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

POOLING = "pooling"
"""The name under which a task's evidence is stored with its calibration."""
GAINS = torch.linspace(0.0, 5.0, 41, dtype=torch.float64)
"""How much more certain an answer may become."""
CAUTION_OF_LABELS, CAUTION_OF_TARGETS = 0.1, 4.0
"""Gains are this much less probable beforehand, as a log-likelihood for each unit squared."""
MOST = 300
"""Examples of a task that are looked at."""


def common(labels_of_tasks: Sequence[Tensor]) -> Tensor:
    """The share of labels that each pair of tasks has in common, of all that either has: (T, T)."""
    count = max(int(labels.max()) for labels in labels_of_tasks) + 1
    has = torch.stack([torch.zeros(count).index_fill_(0, labels, 1.0) for labels in labels_of_tasks]).double()  # (T, L)
    both = has @ has.T  # (T, T)
    sizes = has.sum(1)  # (T,)
    return both / (sizes.unsqueeze(0) + sizes.unsqueeze(1) - both)


def blend(shares: Tensor, in_common: Tensor | None = None) -> Tensor:
    """The probability that two draws of a task are different ones, as far as these have labels in common.

    From shares (N, T), and what pairs of tasks have in common (T, T), everything by default. (N,), 0 for a single task.
    """
    if in_common is None:
        return (1.0 - shares.square().sum(1)).clamp_min(0.0)
    different = in_common - torch.eye(len(in_common), dtype=in_common.dtype)
    return ((shares @ different) * shares).sum(1).clamp_min(0.0)


def sharpened(probabilities: Tensor, blended: Tensor, gain: Tensor) -> Tensor:
    """Probabilities of labels to the power 1 + gain * blended, normalised: (N, L), (N,), () -> (N, L)."""
    return ((1 + gain * blended).unsqueeze(1) * probabilities.clamp_min(1e-300).log()).softmax(1)


def narrowed(blended: Tensor, gain: Tensor) -> Tensor:
    """The factor of standard deviations: (N,), () -> (N,)."""
    return (1 + gain * blended).rsqrt()


def evidence_of_labels(probabilities: Tensor, blended: Tensor, right: Tensor, weight: Tensor) -> Tensor:
    """The log-likelihood of every gain: (G,).

    From pooled probabilities of labels (N, L), how blended each answer is, whether its most probable label is right,
    and what it counts for (N,).
    """
    likelihoods = []
    for gain in GAINS:
        confidence = sharpened(probabilities, blended, gain).amax(1).clamp(1e-12, 1 - 1e-12)  # (N,)
        likelihoods.append((weight * torch.where(right, confidence.log(), (-confidence).log1p())).sum())
    return torch.stack(likelihoods)


def evidence_of_targets(residuals: Tensor, std: Tensor, blended: Tensor, weight: Tensor) -> Tensor:
    """The log-likelihood of every gain, for normal residuals: (G,).

    From residuals and standard deviations of pooled answers (N, D), how blended each answer is, and what it counts for
    (N,). The targets of one example count as one.
    """
    likelihoods = []
    for gain in GAINS:
        narrower = (std * narrowed(blended, gain).unsqueeze(1)).clamp_min(1e-150)  # (N, D)
        of_targets = -0.5 * (residuals / narrower).square() - narrower.log()  # (N, D)
        likelihoods.append((weight * of_targets.mean(1)).sum())
    return torch.stack(likelihoods)


def most_probable_gain(evidence_of_tasks: Iterable[Tensor], caution: float) -> Tensor:
    """The gain that the evidence of all tasks (G,) makes most probable, 0 without any: ()."""
    likelihood = sum(evidence_of_tasks, torch.zeros_like(GAINS))
    return GAINS[int((likelihood - caution * GAINS.square()).argmax())]

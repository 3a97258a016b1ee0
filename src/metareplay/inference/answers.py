"""What a model answers, one row per input; tasks and classes are numbers here, which the estimators give their names."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The task of each input, and how it was found."""

    task: Tensor
    """The task that was given or chosen (N,)."""
    scores: Tensor | None = None
    """Every task's score, the lowest wins (T, N); None where none was inferred by a criterion."""
    task_probabilities: Tensor | None = None
    """(N, T); None where the criterion gives none."""


@dataclass(frozen=True, kw_only=True)
class ClassAnswer(Answer):
    """Classes; uncertainties are entropies in nats."""

    probabilities: Tensor
    """A column for every class of every task, task after task (N, C); zero for the classes of tasks that were not chosen."""
    total: Tensor
    """Total uncertainty, the entropy of the posterior predictive (N,)."""
    aleatoric: Tensor
    """The part that is in the data: the mean entropy of single networks (N,)."""

    @property
    def epistemic(self) -> Tensor:
        """The part that more data would remove: how much the networks differ (N,)."""
        return (self.total - self.aleatoric).clamp_min(0.0)  # SM eq. entropy:decomposition


@dataclass(frozen=True, kw_only=True)
class RealAnswer(Answer):
    """Real targets."""

    mean: Tensor
    """(N, D)"""
    std: Tensor
    """Standard deviation over weight samples (N, D): how little the model knows here."""

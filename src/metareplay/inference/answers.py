"""A model's answers, one row per input. Tasks and classes are indices here; the estimators turn them into names."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The task of each input, and how it was inferred."""

    task: Tensor
    """The task that was given or chosen (N,)."""
    scores: Tensor | None = None
    """Every task's score, the lowest wins (T, N); None unless the task was inferred by a criterion."""
    task_probabilities: Tensor | None = None
    """Calibrated probabilities of the tasks (N, T); None if the task was given or the criterion has none."""
    strangeness: Tensor | None = None
    """How unlike its task's own inputs an input is (N,): above 1, it belongs to no task; None without statistics."""

    @property
    def known(self) -> Tensor | None:
        """Whether an input belongs to any of the tasks (N,) bool; None without statistics."""
        return None if self.strangeness is None else self.strangeness <= 1.0


@dataclass(frozen=True, kw_only=True)
class ClassAnswer(Answer):
    """An answer with classes; uncertainties are entropies in nats."""

    probabilities: Tensor
    """A column for every class of every task, in task order (N, C): p(task and class | x)."""
    total: Tensor
    """Total uncertainty, the entropy of the posterior predictive over distinct labels (N,)."""
    aleatoric: Tensor
    """The part inherent in the data: the mean entropy of the individual networks of all tasks (N,)."""

    @property
    def epistemic(self) -> Tensor:
        """The part that more data would remove: how much networks and tasks differ, and how strange inputs are (N,)."""
        return (self.total - self.aleatoric).clamp_min(0.0)  # SM eq. entropy:decomposition


@dataclass(frozen=True, kw_only=True)
class RealAnswer(Answer):
    """An answer with real targets."""

    mean: Tensor
    """(N, D)"""
    std: Tensor
    """Standard deviation of targets (N, D): of noise, over weight samples, and over tasks; without the noise, if the
    model is not calibrated."""
    epistemic: Tensor
    """Standard deviation of predictions over weight samples and tasks (N, D): how little the model knows here."""
    lower: Tensor | None = None
    """The lower end of the interval that contains a share ``inference.coverage`` of targets (N, D)."""
    upper: Tensor | None = None

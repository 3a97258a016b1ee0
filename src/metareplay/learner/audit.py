"""The audit of a model: how far every task has moved since it was learned or last updated, without old data."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from metareplay.inference.reference import held_out_score
from metareplay.learner.learner import ContinualLearner


@dataclass(frozen=True)
class TaskAudit:
    """What is known about the change of one task."""

    task: str
    change: float | None
    """Mean total variation distance between its predictions for stored probes then and now: 0 the same, 1 another
    answer with certainty for every probe; None if nothing was stored when it was learned."""
    worst: float | None = None
    """The largest over the probes."""
    labels: float | None = None
    """Share of the probes whose most probable class changed; None for regression."""
    divergence: dict[str, Any] | None = None
    """Of its posterior: ``kind`` (kl, or distance for points), ``total`` and its standard ``error`` (0: exact),
    ``per_weight``, and ``relative``: the shift of the means in standard deviations; None without a closed form."""
    held_out: float | None = None
    """Accuracy on its held-out share when it was learned (for regression the mean squared error, scaled)."""
    held_out_examples: int = 0
    score: float | None = None
    """The same figure now, on labelled data that were given."""
    score_examples: int = 0

    def exceeds(self, limit: float) -> bool:
        """Whether its predictions changed by more than this."""
        return self.change is not None and self.change > limit

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def audit(learner: ContinualLearner, names: Sequence[str]) -> list[TaskAudit]:
    """Every task of a model, in order."""
    return [_audited(learner, task, name) for task, name in enumerate(names)]


def _audited(learner: ContinualLearner, task: int, name: str) -> TaskAudit:
    then = held_out_score(learner.predictor, task)
    score, count = (None, 0) if then is None else then
    change = learner.change_of(task)
    if change is None:
        return TaskAudit(name, None, held_out=score, held_out_examples=count)
    posterior = change.posterior
    divergence = None if posterior is None else {**posterior._asdict(), "exact": posterior.exact}
    return TaskAudit(name, change.predictions, change.worst, change.labels, divergence, score, count)

"""The combination of all evidence: pairwise log-odds between tasks, and from them scores and probabilities.

A weight per kind of evidence is learned without old data: from how the newest task's held-out inputs are told apart
from every earlier task. The log-odds are antisymmetric, so examples of one side are enough. Each task updates the
weights as
Bayesian logistic regression does, with the last estimate and its precision as the prior.

The newest of drifting tasks is easier to tell apart than those in between, and where few of its inputs or none are held
out, they say little. There, inputs drawn from the densities of all tasks show how certain the odds may be.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from metareplay.inference.statistics.certainty import (
    History,
    adjusted_temperature,
    learned_temperature,
    temperature_of_all,
)
from metareplay.inference.statistics.evidence import Stored, TaskEvidence
from metareplay.optimisers import LBFGS

PRIOR_WEIGHT = 0.5
PRIOR_PRECISION = 4.0
OF_INPUTS = ("inputs", "residuals", "edges", "own inputs", "pooled inputs", "pooled edges")
"""Evidence that no change of a network touches."""
OTHER = "pairs.other"
"""Stored if auxiliary outputs are weighed as well, which they are not in models of earlier versions."""
LEAST_SPREAD = 0.1
"""In nats: smaller differences do not count as evidence."""
FEW = 100
"""Fewer held-out inputs do not suffice to learn how certain the odds may be."""
STRETCH = 2.0
"""The most by which odds of drawn inputs are stretched, or shrunk, to be like those of real ones."""
AT_ONCE = 500
"""Inputs whose pairs of tasks are compared together."""


@dataclass(frozen=True)
class Combination:
    """How kinds of evidence are weighted; ``spread`` (T, J) is by the later task of a pair."""

    names: Sequence[str]
    weights: Tensor
    """(J,)"""
    precision: Tensor
    """(J, J)"""
    temperature: float
    spread: Tensor
    """Typical differences of each kind of evidence, by task (T, J)."""
    seen: int = 0
    """Held-out inputs that the weights were learned from: the fewer, the less certain is any probability."""
    history: History = field(default_factory=History.empty)
    """Of wide inputs: how certain the odds could have been for all of these."""

    @classmethod
    def stored(cls, names: Sequence[str], stored: Sequence[Stored], *, last: Stored | None = None) -> "Combination":
        """For these tasks, as the last one of all left it; by default the last of these."""
        ones = torch.ones(len(names), dtype=torch.float64)
        last = last or (stored[-1] if stored else {})
        spread = [task.get("pairs.spread", ones) for task in stored]
        return cls(
            names,
            last.get("pairs.weights", PRIOR_WEIGHT * ones),
            last.get("pairs.precision", PRIOR_PRECISION * torch.eye(len(names), dtype=torch.float64)),
            float(last.get("pairs.temperature", torch.tensor(1.0))),
            torch.stack(spread) if spread else torch.ones(0, len(names), dtype=torch.float64),
            int(last.get("pairs.seen", torch.tensor(0))),
            History(last["pairs.losses"], int(last["pairs.tasks"])) if "pairs.losses" in last else History.empty(),
        )

    def tensors(self) -> dict[str, Tensor]:
        """To be stored with the last task."""
        past = {"pairs.losses": self.history.losses, "pairs.tasks": torch.tensor(self.history.tasks)}
        return {
            "pairs.weights": self.weights,
            "pairs.precision": self.precision,
            "pairs.temperature": torch.tensor(self.temperature, dtype=torch.float64),
            "pairs.spread": self.spread[-1],
            "pairs.seen": torch.tensor(self.seen),
            **(past if self.history.tasks else {}),
        } | ({OTHER: torch.tensor(True)} if "other" in self.names else {})

    def scores(self, evidence: TaskEvidence) -> Tensor:
        """-sum over other tasks of log p(this one rather than that): (T, N), the lowest wins."""
        terms = evidence.terms()
        parts = [
            self.lost({name: values[..., start : start + AT_ONCE] for name, values in terms.items()})
            for start in range(0, evidence.inputs.shape[1], AT_ONCE)
        ]
        return torch.cat(parts, dim=1) if parts else evidence.inputs[:, :0]

    def lost(self, terms: Mapping[str, Tensor], tasks: Tensor | None = None) -> Tensor:
        """The scores of tasks among each other: (K, T, B) -> (T, B); as in ``log_odds``."""
        return _lost(self.log_odds(terms, tasks))

    def log_odds(self, terms: Mapping[str, Tensor], tasks: Tensor | None = None) -> Tensor:
        """For each pair, the evidence for the first task against the second: (T, T, B).

        Of all tasks, or of those that are named for each input (T, B).
        """
        numbers = torch.arange(next(iter(terms.values())).shape[1]).unsqueeze(1) if tasks is None else tasks
        later = torch.maximum(numbers.unsqueeze(0), numbers.unsqueeze(1))  # (T, T, 1) or (T, T, B)
        total: Tensor | None = None
        for index, name in enumerate(self.names):
            scale = self.spread[:, index][later]
            gaps = differences(terms[name], alike=tasks is None)  # (T, T, B)
            part = self.weights[index] * self.compressed(gaps / scale)
            total = part if total is None else total + part
        assert total is not None
        return total

    def compressed(self, gaps: Tensor) -> Tensor:
        """Differences of costs, of which large ones count less than in proportion."""
        return torch.asinh(gaps)

    def probabilities(self, scores: Tensor) -> Tensor:
        """Of the tasks: scores (T, N) -> (N, T); as if one more held-out input had belonged to any of them."""
        doubt = 1.0 / (self.seen + 2)
        return ((1 - doubt) * (-self.temperature * scores).softmax(0) + doubt / len(scores)).T


def _lost(odds: Tensor) -> Tensor:
    """-sum over other tasks of log p(this one rather than that): (T, T, B) -> (T, B)."""
    lost = -F.logsigmoid(odds)
    lost.diagonal().zero_()  # (B, T)
    return lost.sum(1)  # (T, T, B) -> (T, B)


def differences(costs: Tensor, *, alike: bool = True) -> Tensor:
    """How much better each task fits than each other one, on average over the networks that know both.

    (K, T, B) -> (T, T, B); entry [a, b] is cost_b - cost_a, zero where no network knows both. ``alike``: the tasks are
    the same for all inputs.
    """
    if len(costs) == 1:
        return (costs[0].unsqueeze(0) - costs[0].unsqueeze(1)).nan_to_num_(0.0, torch.inf, -torch.inf)
    known = ~(costs[:, :, :1] if alike else costs).isnan()  # (K, T, 1) or (K, T, B)
    filled = costs.nan_to_num(0.0)
    total = torch.zeros(costs.shape[1], *costs.shape[1:], dtype=costs.dtype)  # (T, T, B)
    both = (known.unsqueeze(1) & known.unsqueeze(2)).double()  # (K, T, T, 1) or (K, T, T, B)
    for network, of_network in zip(both, filled, strict=True):
        total += network * (of_network.unsqueeze(0) - of_network.unsqueeze(1))
    return total / both.sum(0).clamp_min(1.0)


def against_others(costs: Tensor, task: int) -> Tensor:
    """How much better one task fits than each other one: row ``task`` of ``differences``; (K, T, B) -> (T, B)."""
    gaps = costs - costs[:, task : task + 1]  # NaN in networks that do not know both
    return (gaps[0] if len(gaps) == 1 else gaps.nanmean(0)).nan_to_num(0.0, torch.inf, -torch.inf)


def updated(
    combination: Combination,
    evidence: TaskEvidence,
    imagined: Mapping[int, TaskEvidence] | None = None,
    *,
    some: bool = False,
    rough: bool = False,
    learned: bool = False,
) -> Combination:
    """With what the newest task's held-out inputs show: evidence (T, N), of which the last task is the true one.

    ``imagined`` is, by task, the evidence on inputs drawn from densities of earlier tasks: it shows whether features
    and outputs still speak for old tasks. That the densities do is taken for granted. Of the newest task, too, where
    nothing is held out, or densities are ``rough``. ``some``: the evidence is of some of many tasks. ``learned``: the
    network was trained on the newest task's inputs, which makes it far too certain about them.
    """
    terms, newest = evidence.terms(), evidence.num_tasks - 1
    ones = torch.ones(len(combination.names), dtype=torch.float64)
    if newest == 0 or evidence.inputs.shape[1] < 2:
        return replace(combination, spread=torch.cat([combination.spread, ones.unsqueeze(0)]))
    wins = [against_others(terms[name], newest)[:newest] for name in combination.names]  # J times (T - 1, N)
    spread = torch.stack([_spread(win) for win in wins])  # (J,)
    rows = torch.stack([torch.asinh(win / scale) for win, scale in zip(wins, spread, strict=True)])  # (J, T - 1, N)
    real, drawn = rows.flatten(1).T, dict(imagined or {})  # (N (T - 1), J)
    own = drawn.pop(newest, None)
    of_own = None if own is None else _imagined_rows(combination.names, own, newest, spread)
    if rough and learned and of_own is not None:
        real = _as_if_unseen(combination.names, real, of_own, newest)
    pairs = None if of_own is None else (real, of_own)
    flat, share = real, torch.full((len(real),), 1.0 / newest, dtype=torch.float64)  # every input counts once
    if drawn:
        old = torch.cat(list(_rows_of_drawn(combination.names, drawn, spread, pairs if rough else None).values()))
        if not rough:
            of_inputs = [index for index, name in enumerate(combination.names) if name in OF_INPUTS]
            old[:, of_inputs] = real[:, of_inputs].mean(0)
        of_old = torch.full((len(old),), float(share.sum()) / len(old), dtype=torch.float64)
        flat, share = torch.cat([flat, old]), torch.cat([share, of_old])  # together as much as the new
    weights, precision = _learn_weights(flat, share, combination.weights, combination.precision)
    seen, spreads = combination.seen + evidence.inputs.shape[1], torch.cat([combination.spread, spread.unsqueeze(0)])
    new = replace(combination, weights=weights, precision=precision, spread=spreads, seen=seen)
    last = combination.temperature
    if rough and not some:
        scores = _scores_by_rows(new, evidence, newest, real)
        history = new.history.after(scores, {} if new.history.tasks else _scores_of_drawn(new, drawn, pairs))
        return replace(new, temperature=history.temperature(seen), history=history)
    scores = new.scores(evidence)
    if some:
        return replace(new, temperature=adjusted_temperature(scores, newest, last))
    asked = drawn and (own is not None or evidence.inputs.shape[1] < FEW)
    of_drawn = _scores_of_drawn(new, drawn, pairs) if asked else {}
    most = temperature_of_all(scores, of_drawn) if of_drawn else torch.inf
    return replace(new, temperature=learned_temperature(scores, newest, last, most))


def _scores_of_drawn(
    combination: Combination, drawn: Mapping[int, TaskEvidence], pairs: tuple[Tensor, Tensor] | None
) -> dict[int, Tensor]:
    """Scores of inputs drawn from earlier tasks (T, n), by task; ``pairs`` as for ``_rows_of_drawn``."""
    rows = _rows_of_drawn(combination.names, drawn, combination.spread[-1], pairs)
    return {task: _scores_by_rows(combination, drawn[task], task, of_task) for task, of_task in rows.items()}


def _scores_by_rows(combination: Combination, evidence: TaskEvidence, task: int, rows: Tensor) -> Tensor:
    """Scores of inputs of a task, which fits better than others by these rows (n (T - 1), J): (T, n)."""
    odds = combination.log_odds(evidence.terms())  # (T, T, n)
    others = torch.arange(len(odds)) != task
    against = (rows @ combination.weights).reshape(len(odds) - 1, -1)  # (T - 1, n)
    odds[task, others], odds[others, task] = against, -against
    return _lost(odds)


def _as_if_unseen(names: Sequence[str], real: Tensor, of_own: Tensor, rivals: int) -> Tensor:
    """Rows of inputs (N (T - 1), J) that count no more than inputs drawn from the same task do (n (T - 1), J).

    As far as networks are concerned: those of this task were trained on the inputs.
    """
    of_networks = [index for index, name in enumerate(names) if name not in OF_INPUTS]
    rows, drawn = real.reshape(rivals, -1, len(names)).clone(), of_own.reshape(rivals, -1, len(names))
    places = torch.arange(rows.shape[1]) % drawn.shape[1]
    least = torch.minimum(rows, drawn[:, places])  # (T - 1, N, J)
    rows[:, :, of_networks] = least[:, :, of_networks]
    return rows.reshape(-1, len(names))


def _rows_of_drawn(
    names: Sequence[str],
    drawn: Mapping[int, TaskEvidence],
    spread: Tensor,
    pairs: tuple[Tensor, Tensor] | None,
) -> dict[int, Tensor]:
    """How much better than all others each task fits inputs drawn from its density: (n (T - 1), J), by task.

    ``pairs``: rows of the newest task's real inputs, and of inputs drawn from it (n (T - 1), J). What takes the mean
    and the spread of these to those of the real ones is done to the rows of all drawn inputs.
    """
    found = {task: _imagined_rows(names, evidence, task, spread) for task, evidence in drawn.items()}
    if pairs is None:
        return found
    real, own = pairs
    stretch = (real.std(0) / own.std(0).clamp_min(1e-6)).clamp(1 / STRETCH, STRETCH)  # (J,)
    return {task: real.mean(0) + (rows - own.mean(0)) * stretch for task, rows in found.items()}


def _imagined_rows(names: Sequence[str], evidence: TaskEvidence, task: int, spread: Tensor) -> Tensor:
    """How much better than all other tasks this one fits inputs drawn from its density: (n (T - 1), J)."""
    terms, others = evidence.terms(), torch.arange(evidence.num_tasks) != task
    wins = torch.stack([against_others(terms[name], task)[others] for name in names])  # (J, T - 1, n)
    return torch.asinh(wins.flatten(1).T / spread)


def _spread(wins: Tensor) -> Tensor:
    """The typical deviation of some differences (T - 1, N) from their mean; not much less than the differences."""
    within, size = wins.std(1).square().mean().sqrt(), wins.square().mean().sqrt()
    return torch.maximum(within, 0.1 * size).clamp_min(LEAST_SPREAD)


def _learn_weights(rows: Tensor, share: Tensor, prior: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
    """The most probable weights, none negative, of a logistic regression without intercept, and their precision."""
    raw = prior.clamp_min(1e-6).sqrt().clone().requires_grad_(True)  # weights are its squares
    optimiser = LBFGS([raw], max_iter=100, tolerance_grad=1e-7, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        weights = raw.square()
        change = weights - prior
        value = -(share * F.logsigmoid(rows @ weights)).sum() + 0.5 * change @ precision @ change
        value.backward()
        return value

    with torch.enable_grad():
        optimiser.step(loss)
    weights = raw.detach().square()
    odds = rows @ weights
    curvature = share * torch.sigmoid(odds) * torch.sigmoid(-odds)
    return weights, precision + rows.T @ (curvature.unsqueeze(1) * rows)  # (J, J)

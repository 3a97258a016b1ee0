"""What a task was like when it was learned, so that an audit can say how far it has moved, without old data.

Stored are its predictions for probes, inputs drawn from the density of its own inputs (the probes themselves are drawn
again when needed), and the posterior of some of its weights, chosen at random. Never an example.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from metareplay.benchmarks.base import TaskData
from metareplay.inference.predictive import log_likelihoods, log_predictive, predictive_outputs
from metareplay.inference.predictor import AnyPredictor
from metareplay.inference.statistics.density import InputDensity
from metareplay.kernels.gaussian_kl import gaussian_kl
from metareplay.model import ContinualModel
from metareplay.model_changes import unused_weights
from metareplay.nets.registry import build_seeded
from metareplay.nets.weights import WeightSpec
from metareplay.posteriors.families.dirac import Dirac
from metareplay.posteriors.families.mixture import members_of
from metareplay.posteriors.families.radial import Radial
from metareplay.seeding import generator_for

NAME = "reference"
"""The name under which it is stored among the task statistics."""
PROBES = 100
SAMPLES = 50
"""Weight samples, always the same ones, by which probes and held-out inputs are predicted."""
WEIGHTS = 2000
"""The most weights whose posteriors are stored; of a larger network a random choice."""
HELD_OUT = 500
AT_ONCE = 10
"""Probes that are drawn together."""


class PosteriorChange(NamedTuple):
    """How far the posterior of a task is from what it was."""

    kind: str
    """``kl``: KL(then || now) of Gaussians in closed form, in nats; ``distance``: squared distance of points."""
    total: float
    """Over all weights: exact, or estimated from those that were stored."""
    error: float
    """The standard error of the estimate; 0 where it is exact."""
    per_weight: float
    relative: float
    """Root mean square shift of the means, in standard deviations then (of points, in their root mean square)."""

    @property
    def exact(self) -> bool:
        """Whether every weight was stored."""
        return self.error == 0


class Change(NamedTuple):
    """How far a task has moved since it was learned or last updated."""

    predictions: float | None
    """Mean total variation distance of the predictions for the probes, from 0 (the same) to 1; None without probes."""
    worst: float | None
    """The largest over the probes."""
    labels: float | None
    """Share of the probes whose most probable class changed; None for regression."""
    posterior: PosteriorChange | None
    """None where the posterior has no closed form."""


def take_reference(predictor: AnyPredictor, task: int, held_out: TaskData, shape: Sequence[int]) -> None:
    """Store what a task is like that was just learned."""
    if not predictor.keeper.settings.collect:
        return
    model, store = predictor.model, predictor.task_statistics
    taken = {**_weights(predictor, task), **_of_held_out(predictor, task, held_out)}
    x = probes(predictor, task, shape)
    if x is not None:
        taken |= _predictions(predictor, x, task)
    stored = list(store.of(NAME, model.num_tasks))
    stored[task] = taken
    store.put(NAME, stored)


def probes(predictor: AnyPredictor, task: int, shape: Sequence[int], count: int = PROBES) -> Tensor | None:
    """Inputs drawn from the density of a task's own inputs (n, ...), always the same; None if it has none."""
    stored = predictor.keeper.stored()
    if task >= len(stored) or "inputs.mean" not in stored[task]:
        return None
    density, generator = (
        InputDensity.stored(stored[task]),
        generator_for(predictor.seed, "probes", predictor.model.lineage.number_of(task)),
    )
    sizes = [min(AT_ONCE, count - start) for start in range(0, count, AT_ONCE)]
    drawn = torch.cat([density.draw(size, generator=generator) for size in sizes]).float()  # (n, F)
    return drawn.reshape(count, *shape)


def _outputs(predictor: AnyPredictor, x: Tensor, task: int) -> Tensor:
    """Outputs (S, N, C) of the task's networks, always under the same noise."""
    generator = generator_for(predictor.seed, "reference", predictor.model.lineage.number_of(task))
    size = predictor.settings.batch_size
    return predictive_outputs(predictor.model, x, task, SAMPLES, generator=generator, batch_size=size)


def _predictions(predictor: AnyPredictor, x: Tensor, task: int) -> dict[str, Tensor]:
    outputs = _outputs(predictor, x, task)
    if predictor.problem == "classification":
        return {"probabilities": log_predictive(log_likelihoods(outputs)).exp().float()}  # (N, C)
    outputs = outputs.double()
    noise = getattr(predictor.model.likelihood, "scale", 0.0)
    deviation = (outputs.var(0, correction=0) + noise**2).sqrt()
    return {"mean": outputs.mean(0).float(), "deviation": deviation.float()}  # (N, D) each


def _of_held_out(predictor: AnyPredictor, task: int, held_out: TaskData) -> dict[str, Tensor]:
    """How well the task does on inputs that training did not use."""
    x, y = held_out.x[:HELD_OUT], held_out.y[:HELD_OUT]
    if not len(x):
        return {}
    predicted = _predictions(predictor, x, task)
    if predictor.problem == "classification":
        score = (predicted["probabilities"].argmax(1) == y).double().mean()
    else:
        score = (predicted["mean"].double() - y.double()).square().mean()
    return {"held_out.score": score, "held_out.count": torch.tensor(len(x))}


def _weights(predictor: AnyPredictor, task: int) -> dict[str, Tensor]:
    model = predictor.model
    moments = _moments(model, task)
    if moments is None:
        return {}
    generator = generator_for(predictor.seed, "reference weights", model.lineage.number_of(task))
    unused = unused_weights(model, [task])
    used = torch.arange(model.spec.numel) if unused is None else (~unused[0]).nonzero().squeeze(1).cpu()
    chosen = used[torch.randperm(len(used), generator=generator)[:WEIGHTS]].sort().values  # (m,)
    mean, scale = moments
    stored = {"weights.chosen": chosen.int(), "weights.outputs": torch.tensor(model.outputs)}
    stored |= {"weights.total": torch.tensor(len(used)), "weights.mean": mean[..., chosen].float()}
    return stored if scale is None else {**stored, "weights.scale": scale[..., chosen].float()}


@torch.no_grad()
def _moments(model: ContinualModel, task: int) -> tuple[Tensor, Tensor | None] | None:
    """Means and standard deviations of a task's weights, (W,) or (M, W) of an ensemble's members; None if unknown."""
    members = members_of(model.posterior(task))[0]
    if isinstance(members, Dirac):
        return members.weights.detach().cpu(), None
    gaussian = members.moments() if isinstance(members, Radial) else members
    mean, scale = getattr(gaussian, "mean", None), getattr(gaussian, "scale", None)
    if not isinstance(mean, Tensor) or not isinstance(scale, Tensor) or hasattr(gaussian, "rsample_and_log_prob"):
        return None  # a flow's base is not its posterior
    return mean.detach().cpu(), scale.detach().cpu()


def change_of(predictor: AnyPredictor, task: int, shape: Sequence[int]) -> Change | None:
    """How far a task has moved; None if nothing was stored when it was learned."""
    stored = predictor.task_statistics.of(NAME, predictor.model.num_tasks)[task]
    if not stored:
        return None
    distances, labels = _prediction_change(predictor, task, stored, shape)
    mean, worst = (None, None) if distances is None else (float(distances.mean()), float(distances.max()))
    return Change(mean, worst, labels, _posterior_change(predictor.model, task, stored))


def _prediction_change(
    predictor: AnyPredictor, task: int, stored: Mapping[str, Tensor], shape: Sequence[int]
) -> tuple[Tensor | None, float | None]:
    """The total variation distance of the predictions for each probe (n,), and the share of changed labels."""
    x = probes(predictor, task, shape)
    if x is None or not {"probabilities", "mean"} & set(stored):
        return None, None
    now = _predictions(predictor, x, task)
    if "probabilities" in stored:
        then, new = stored["probabilities"].double(), now["probabilities"].double()
        return 0.5 * (then - new).abs().sum(1), float((then.argmax(1) != new.argmax(1)).double().mean())
    shift = (now["mean"] - stored["mean"]).double().abs() / stored["deviation"].double().clamp_min(1e-12)
    return torch.erf(shift / 8**0.5).mean(1), None  # of two Gaussians with equal variances; (N, D) -> (N,)


def _posterior_change(model: ContinualModel, task: int, stored: Mapping[str, Tensor]) -> PosteriorChange | None:
    moments = _moments(model, task)
    if moments is None or "weights.mean" not in stored:
        return None
    chosen = stored["weights.chosen"].long()
    outputs, weights = int(stored["weights.outputs"]), int(stored["weights.total"])
    if outputs != model.outputs:  # the network has grown since
        smaller = WeightSpec.of(build_seeded(model.factory, outputs, torch.Generator().manual_seed(0)))
        chosen = smaller.positions_in(model.spec)[chosen]
    then, now = stored["weights.mean"].double(), moments[0][..., chosen].double()  # (..., m)
    if moments[1] is None or "weights.scale" not in stored:
        kind, parts = "distance", (now - then).square()
        relative = float((parts.mean() / then.square().mean().clamp_min(1e-30)).sqrt())
    else:
        scale, new_scale = stored["weights.scale"].double(), moments[1][..., chosen].double()
        kind, parts = "kl", gaussian_kl(*(part.unsqueeze(-1) for part in (then, scale, now, new_scale)))  # (..., m)
        relative = float(((now - then) / scale).square().mean().sqrt())
    each = parts.reshape(-1, len(chosen)).mean(0)  # over the members of an ensemble; (m,)
    missing = 0.0 if len(chosen) == weights else (1 - len(chosen) / weights) ** 0.5
    error = missing * weights * float(each.std()) / len(chosen) ** 0.5
    per_weight = float(each.mean())
    return PosteriorChange(kind, weights * per_weight, error, per_weight, relative)


def held_out_score(predictor: AnyPredictor, task: int) -> tuple[float, int] | None:
    """Accuracy (for regression the mean squared error) on the held-out share then, and its size."""
    stored = predictor.task_statistics.of(NAME, predictor.model.num_tasks)[task]
    if "held_out.score" not in stored:
        return None
    return float(stored["held_out.score"]), int(stored["held_out.count"])


def imagined_examples(predictor: AnyPredictor, task: int, shape: Sequence[int], count: int) -> TaskData | None:
    """Inputs drawn from the density of a task's own inputs, with its present answers as targets."""
    x = probes(predictor, task, shape, count)
    if x is None:
        return None
    predicted = _predictions(predictor, x, task)
    if predictor.problem == "classification":
        return TaskData(x, predicted["probabilities"].argmax(1))
    return TaskData(x, predicted["mean"])

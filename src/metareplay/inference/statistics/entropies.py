"""How the entropies of a task's answers change while later tasks are learned.

Later tasks change the network of an earlier one a little, mostly so that it is less certain. Its old inputs are gone,
but inputs drawn from the stored density have nearly the same entropies as they, then and later. Those of such probes
are stored when the task ends; a factor takes entropies of the present network back to what they would have been then,
so that thresholds taken then still hold. Where nothing is held out, they also stand for those of inputs that were not
learned from.
"""

from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from metareplay.inference.statistics.density import InputDensity
from metareplay.inference.statistics.evidence import Stored

PROBES = 96
AT_ONCE = 8
"""Probes that are drawn together."""
THEN = "unknown.probes"
"""Entropies of the probes when the task ended (P,)."""
FACTOR = "unknown.factor"
"""By which entropies are multiplied now ()."""
FOLLOWED = "unknown.followed"
"""The number of tasks when the factor was last taken ()."""
RIDGE = 1e-3
"""In squared nats: where all probes are certain, the factor is 1."""


def probes(stored: Stored, shape: Sequence[int], generator: Generator) -> Tensor:
    """Inputs drawn from the density of a task's own inputs: (P, ...)."""
    density = InputDensity.stored(stored)
    drawn = [density.draw(AT_ONCE, generator=generator) for _ in range(PROBES // AT_ONCE)]
    return torch.cat(drawn).float().reshape(PROBES, *shape)  # (P, F) -> (P, ...)


def factor(then: Tensor, now: Tensor) -> Tensor:
    """What takes the present entropies of probes (P,) to the size, in root mean square, of those of then (P,): ().

    Never above 1: a network that has become more certain rejects fewer of its own inputs, not more.
    """
    then, now = then.double(), now.double()
    return ((then.square().mean() + RIDGE) / (now.square().mean() + RIDGE)).sqrt().clamp_max(1.0)


def as_if_unseen(learned: Tensor, of_probes: Tensor) -> Tensor:
    """Entropies that inputs (N,) would have if the network had not learned from them, never lower: (N,).

    A network is far too certain about what it was trained on. Each entropy becomes that of the probe, out of those of
    (P,), with the same rank.
    """
    place = torch.empty_like(learned).scatter_(0, learned.argsort(stable=True), torch.arange(len(learned)).to(learned))
    unseen = of_probes.to(learned).quantile((place + 0.5) / max(len(learned), 1))  # (N,)
    return torch.maximum(learned, unseen)


def due(stored: Sequence[Stored], most: int) -> list[int]:
    """The tasks whose entropies are followed next, at most so many: those that were followed longest ago."""
    ages = {task: int(of_task.get(FOLLOWED, torch.tensor(0))) for task, of_task in enumerate(stored) if THEN in of_task}
    return sorted(sorted(ages, key=lambda task: ages[task])[:most])


def factors(stored: Sequence[Stored]) -> Tensor:
    """Of these tasks (T,); 1 where nothing was followed."""
    return torch.stack([task.get(FACTOR, torch.ones(())).double() for task in stored])


def as_they_are_now(stored: Stored) -> dict[str, Tensor]:
    """A task's thresholds in terms of the present network's entropies; its probes are forgotten."""
    kept = {name: tensor for name, tensor in stored.items() if name not in (THEN, FACTOR, FOLLOWED)}
    if FACTOR in stored:
        for name in ("unknown.middle", "unknown.unit"):
            kept[name] = kept[name].clone()
            kept[name][0] /= stored[FACTOR]
    return kept

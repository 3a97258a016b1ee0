"""What is stored about tasks when one of them gets more data, or is removed: no old data are needed for either."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from metareplay.inference.statistics.density import InputDensity, PrincipalDirections, main_directions
from metareplay.inference.statistics.edges import MEAN
from metareplay.inference.statistics.evidence import Stored, space_name, spaces_of
from metareplay.inference.statistics.moments import AffineMap, Moments
from metareplay.inference.statistics.passes import EDGES, FIXED, INPUTS
from metareplay.inference.statistics.unknown import calibrated, summed


def follow_change(
    stored: Sequence[dict[str, Tensor]], network: int, layer: str, change: AffineMap, *, together: bool = False
) -> None:
    """Map the moments of all tasks in a network's layer along with its change, which is added up as drift.

    ``together`` is faster with many tasks, and differs by rounding.
    """
    name = space_name(network, layer)
    tasks = [task for task in stored[network:] if f"{name}.mean" in task]
    alone = (Moments.stored(task, name).mapped(change).tensors(name) for task in tasks)
    mapped = Moments.mapped_together(tasks, name, change) if together else alone
    for task, tensors in zip(tasks, mapped, strict=True):
        task |= tensors
    so_far = stored[network].get(f"drift.{layer}", torch.zeros(2, dtype=torch.float64))
    step = torch.tensor([change.moved, change.unexplained], dtype=torch.float64)
    stored[network][f"drift.{layer}"] = so_far + step


def drift_by_task(stored: Sequence[Stored]) -> list[dict[str, tuple[float, float]]]:
    """For each task: how far the followed layers of its network moved in all, and what the maps left open."""
    entries = [[(key, task[key]) for key in task if key.startswith("drift.")] for task in stored]
    return [
        {key.removeprefix("drift."): (float(values[0]), float(values[1])) for key, values in of_task}
        for of_task in entries
    ]


def examples_of(stored: Stored) -> int:
    """The number of examples that a task was described by; at least one."""
    counts = [value for key, value in stored.items() if key == "examples" or key.endswith(".count")]
    return max(1, int(counts[0])) if counts else 1


def merged(old: Stored, new: Stored, *, gaussians: int, directions: int) -> dict[str, Tensor]:
    """The description of a task's old and new inputs together, each weighted by its number of examples."""
    counts = examples_of(old), examples_of(new)
    densities = InputDensity.stored(old), InputDensity.stored(new)
    result = _density(densities, counts, gaussians, directions).tensors()
    if MEAN in old and MEAN in new:
        edges = InputDensity.stored(old, EDGES), InputDensity.stored(new, EDGES)
        most = max(density.directions.shape[1] for density in edges)
        result |= _density(edges, counts, max(map(_gaussians, edges)), most).tensors(EDGES)
    rows = [_classes(stored, counts[index]) for index, stored in enumerate((old, new))]
    for network, layer in spaces_of(old):
        name = space_name(network, layer)
        if f"{name}.mean" in new:
            pair = Moments.stored(old, name), Moments.stored(new, name)
            result |= _moments(pair, rows).tensors(name)
    both = _summed(*rows)
    result |= {"classes": torch.tensor(sorted(both)), "examples": torch.tensor(sum(counts))}
    return {**result, "class_counts": torch.tensor([both[label] for label in sorted(both)], dtype=torch.float64)}


def _gaussians(density: InputDensity) -> int:
    return len(density.mean)


def _classes(stored: Stored, examples: int) -> dict[int, float]:
    """Examples by class; equally many of each where that was not stored."""
    if "classes" in stored:
        return dict(zip(stored["classes"].tolist(), stored["class_counts"].tolist(), strict=True))
    means = next((value for key, value in stored.items() if key.endswith(".mean") and key != "inputs.mean"), None)
    count = 1 if means is None else len(means)
    return dict.fromkeys(range(count), examples / count)


def _summed(*counts: Mapping[int, float]) -> dict[int, float]:
    return {label: sum(part.get(label, 0.0) for part in counts) for part in counts for label in part}


def _moments(pair: tuple[Moments, Moments], rows: Sequence[Mapping[int, float]]) -> Moments:
    """Means by class, and the covariance within classes, of two sets of features in the same space."""
    total = _summed(*rows)
    order = sorted(total)
    features = pair[0].mean.shape[1]
    sums = {label: torch.zeros(features, dtype=torch.float64) for label in order}
    for moments, counts in zip(pair, rows, strict=True):
        for mean, (label, count) in zip(moments.mean, counts.items(), strict=False):
            sums[label] += count * mean
    means = {label: sums[label] / total[label] for label in order}
    weights = [moments.count for moments in pair]
    scatter = sum((count * moments.covariance for count, moments in zip(weights, pair, strict=True)), torch.zeros(()))
    for moments, counts in zip(pair, rows, strict=True):
        for mean, (label, count) in zip(moments.mean, counts.items(), strict=False):
            apart = mean - means[label]
            scatter = scatter + count * torch.outer(apart, apart)  # what the class means differ by
    return Moments(torch.stack([means[label] for label in order]), scatter / sum(weights), sum(weights))


def _density(densities: Sequence[InputDensity], counts: Sequence[int], gaussians: int, directions: int) -> InputDensity:
    """All Gaussians of both, the most similar ones joined until there are few enough."""
    parts = [part for density, count in zip(densities, counts, strict=True) for part in _parts(density, count)]
    while len(parts) > max(gaussians, 1):
        first, second = _most_similar(parts)
        together = _joined(parts[first], parts[second], directions)
        parts = [part for index, part in enumerate(parts) if index not in (first, second)] + [together]
    return InputDensity.of(parts)


def _parts(density: InputDensity, count: int) -> list[PrincipalDirections]:
    features = density.mean.shape[1]
    parts = []
    for mean, units, variances, noise, share in zip(
        density.mean, density.directions, density.variances, density.noise, density.share, strict=True
    ):
        present = units.square().sum(1) > 0.5  # the others are zero
        number = max(1, round(count * float(share)))
        factors = (number * variances[present]).sqrt().unsqueeze(1) * units[present]  # (q, F)
        rest = number * float(noise) * max(features - int(present.sum()), 0)
        parts.append(PrincipalDirections(number, mean, factors, rest))
    return parts


def _most_similar(parts: Sequence[PrincipalDirections]) -> tuple[int, int]:
    """The two that lose least when they are joined: Ward's distance of their means."""
    means = torch.stack([part.mean for part in parts])  # (G, F)
    counts = torch.tensor([float(part.count) for part in parts], dtype=torch.float64)
    weights = counts.unsqueeze(0) * counts.unsqueeze(1) / (counts.unsqueeze(0) + counts.unsqueeze(1))  # (G, G)
    costs = weights * torch.cdist(means, means).square()
    costs.fill_diagonal_(torch.inf)
    best = int(costs.argmin())
    return best // len(parts), best % len(parts)


def _joined(a: PrincipalDirections, b: PrincipalDirections, directions: int) -> PrincipalDirections:
    count = a.count + b.count
    between = (a.count * b.count / count) ** 0.5 * (a.mean - b.mean)  # (F,)
    rows = torch.cat([a.factors, b.factors, between.unsqueeze(0)])  # (q + r + 1, F)
    mean = (a.count * a.mean + b.count * b.mean) / count
    return PrincipalDirections(count, mean, *main_directions(rows, directions, a.rest + b.rest))


def widened(old: Stored, own: Tensor, false_rejections: float, share: float) -> dict[str, Tensor]:
    """Thresholds for unknown inputs that fit old and new inputs: own (J, N) are measures of new ones, ``share`` their
    part.

    No unit becomes smaller, so that inputs which were known stay so.
    """
    new = calibrated(own, false_rejections)
    middle = (1 - share) * old["unknown.middle"] + share * new["unknown.middle"]
    units = [part["unknown.unit"] + (part["unknown.middle"] - middle).abs() for part in (old, new)]
    unit = torch.maximum(*units)
    sums = summed(own, middle.unsqueeze(1), unit.unsqueeze(1))
    needed = sums.quantile(1 - false_rejections) if len(sums) else old["unknown.threshold"]
    threshold = torch.maximum(old["unknown.threshold"], needed.to(old["unknown.threshold"]))
    return {"unknown.middle": middle, "unknown.unit": unit, "unknown.threshold": threshold}


def mixed_scales(old: Stored, new: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """Mean and standard deviation of a task's own distances, over old and new inputs."""
    result = {}
    for name, values in new.items():
        before = old.get(name, values)
        mean = (1 - share) * before[0] + share * values[0]
        parts = [before[1] ** 2 + (before[0] - mean) ** 2, values[1] ** 2 + (values[0] - mean) ** 2]
        deviation = ((1 - share) * parts[0] + share * parts[1]).sqrt()
        result[name] = torch.stack([mean, deviation])
    return result


def without_task(stored: Sequence[Stored], task: int) -> list[dict[str, Tensor]]:
    """What is stored about the other tasks once one is gone, and with it the network in which it was described."""
    rest = [dict(entry) for index, entry in enumerate(stored) if index != task]
    if not rest:
        return rest
    before = _layers(stored[-1])
    rest = [_renumbered(entry, task) for entry in rest]
    after = _layers(rest[-1])
    return [_without_terms(entry, before, after) for entry in rest]


def _layers(stored: Stored) -> list[str]:
    """The layers in which a task is described, in the order of their weights, as far as any of them can vanish."""
    return sorted(
        dict.fromkeys(layer for _, layer in spaces_of(stored)), key=lambda layer: (layer == EDGES, layer != INPUTS)
    )


def _renumbered(stored: Mapping[str, Tensor], task: int) -> dict[str, Tensor]:
    """Without the spaces of a removed network; those of later ones get its number. Inputs and edges depend on none."""
    result = {}
    for key, tensor in stored.items():
        number, dot, rest = key.removeprefix("network").partition(".")
        if (
            not key.startswith("network")
            or not number.isdecimal()
            or rest.startswith(tuple(f"{layer}." for layer in FIXED))
        ):
            result[key] = tensor
        elif int(number) != task:
            result[f"network{int(number) - (int(number) > task)}{dot}{rest}"] = tensor
    return result


def _without_terms(stored: dict[str, Tensor], before: Sequence[str], after: Sequence[str]) -> dict[str, Tensor]:
    """Weights of evidence without those of layers in which no task is described any more."""
    if len(before) == len(after) or "pairs.weights" not in stored:
        return stored
    terms = [*(layer for layer in before if layer == INPUTS), *before]  # inputs alone, then all layers: the last terms
    first = len(stored["pairs.weights"]) - len(terms)
    kept = torch.tensor([*range(first), *(first + index for index, layer in enumerate(terms) if layer in after)])
    changed = {name: stored[name][kept] for name in ("pairs.weights", "pairs.spread")}
    return {**stored, **changed, "pairs.precision": stored["pairs.precision"][kept][:, kept]}

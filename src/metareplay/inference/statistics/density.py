"""Densities of inputs: a mixture of Gaussians, a few for each class, each with a few principal directions.

The data stream through in parts: memory does not grow with their number. The variance outside the principal directions
is spread evenly over all other directions [Tipping and Bishop 1999].
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import log, pi

import torch
from torch import Generator, Tensor

SMALLEST_VARIANCE = 1e-4
"""Of the mean variance: constant columns are not infinitely informative."""
SMALLEST_SQUARE = 1e-9
PRECISE = 256
"""Wider inputs are compared in float32: their costs are large."""
AT_ONCE = 500
"""Inputs that are compared with the densities together."""
NUMBERS_AT_ONCE = 2**19
"""Differences of inputs and means that are held at once."""
FIRST_EXAMPLES = 1000
"""Examples of a class by which it is divided into groups."""
SMALLEST_GROUP = 20
"""The fewest examples that a group should have."""
VECTORS_PER_DIRECTION = 4
"""The fewest examples for every principal direction."""
ROUNDS = 15
"""Rounds of k-means."""


@dataclass(frozen=True)
class PrincipalDirections:
    """The mean of some vectors and their main directions of variation, updated part by part."""

    count: int
    mean: Tensor
    """(F,)"""
    factors: Tensor
    """Directions times the root of their summed squares (q, F)."""
    rest: float
    """Summed squares outside the directions."""

    @classmethod
    def empty(cls, features: int) -> "PrincipalDirections":
        """Of no vectors."""
        return cls(0, torch.zeros(features, dtype=torch.float64), torch.zeros(0, features, dtype=torch.float64), 0.0)

    def updated(self, x: Tensor, directions: int) -> "PrincipalDirections":
        """With some more vectors (n, F); at most this many directions are kept, the rest is summed up."""
        if len(x) == 0:
            return self
        x = x.double()
        count, mean = self.count + len(x), x.mean(0)
        between = (self.count * len(x) / count) ** 0.5 * (self.mean - mean)  # the means' part of the scatter; (F,)
        rows = torch.cat([self.factors, x - mean, between.unsqueeze(0)])  # (q + n + 1, F)
        mean = (self.count * self.mean + len(x) * mean) / count
        return PrincipalDirections(count, mean, *main_directions(rows, directions, self.rest))

    def gaussian(self) -> tuple[Tensor, Tensor, Tensor, float]:
        """Mean (F,), unit directions (q, F), their variances (q,) and the variance in every other direction."""
        features, count = len(self.mean), max(self.count, 1)
        known = max(1, count // VECTORS_PER_DIRECTION)  # more directions would fit the examples, not their kind
        factors, dropped = self.factors[:known], self.factors[known:]
        variances = factors.square().sum(1) / count  # (q,)
        units = factors / factors.norm(dim=1, keepdim=True).clamp_min(1e-30)  # (q, F)
        rest = (self.rest + float(dropped.square().sum())) / count
        total, others = float(variances.sum()) + rest, max(features - len(variances), 1)
        squares = float(variances.square().sum()) + rest**2 / others  # tr S^2
        shrinkage = oracle_shrinkage(total, squares, count, features)
        mean = total / features
        noise = (1 - shrinkage) * rest / others + shrinkage * mean
        floor = max(SMALLEST_VARIANCE * mean, 1e-12)
        variances = ((1 - shrinkage) * variances + shrinkage * mean).clamp_min(floor)
        return self.mean, units, variances, max(noise, floor)


def main_directions(rows: Tensor, directions: int, rest: float = 0.0) -> tuple[Tensor, float]:
    """At most this many factors (q, F) that stand for rows (n, F), and the summed squares left over, added to rest."""
    values, vectors = _right_singular(rows)
    kept = min(directions, int((values > 1e-7 * values.max()).sum()))
    return values[:kept].unsqueeze(1) * vectors[:kept], rest + float(values[kept:].square().sum())


def oracle_shrinkage(trace: float, trace_of_square: float, count: int, features: int) -> float:
    """How far a covariance estimated from ``count`` vectors is shrunk to a sphere [Chen et al. 2010, OAS]."""
    if features == 1:
        return 0.0
    spread = (count + 1 - 2 / features) * (trace_of_square - trace**2 / features)
    if spread <= 0:
        return 1.0
    return min(1.0, ((1 - 2 / features) * trace_of_square + trace**2) / spread)


def _right_singular(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Singular values and right singular vectors of (m, F), largest first, by the smaller Gram matrix."""
    if len(rows) <= rows.shape[1]:
        squares, left = torch.linalg.eigh(rows @ rows.T)  # (m, m)
        values = squares.clamp_min(0).sqrt()
        vectors = (left.T @ rows) / values.clamp_min(1e-30).unsqueeze(1)  # (m, F)
    else:
        squares, right = torch.linalg.eigh(rows.T @ rows)  # (F, F)
        values, vectors = squares.clamp_min(0).sqrt(), right.T
    return values.flip(0), vectors.flip(0)


@dataclass(frozen=True)
class InputDensity:
    """p(x) of one task: Gaussians weighted by their share of the examples."""

    mean: Tensor
    """(G, F)"""
    directions: Tensor
    """Unit vectors (G, q, F); zero where a Gaussian has fewer."""
    variances: Tensor
    """(G, q)"""
    noise: Tensor
    """The variance in every other direction (G,)."""
    share: Tensor
    """(G,)"""

    @classmethod
    def of(cls, gaussians: Iterable[PrincipalDirections]) -> "InputDensity":
        """From the directions of each Gaussian."""
        parts = list(gaussians)
        means, units, variances, noises = zip(*(part.gaussian() for part in parts), strict=True)
        most, noise = max(len(unit) for unit in units), torch.tensor(noises, dtype=torch.float64)
        directions = torch.zeros(len(parts), most, means[0].shape[0], dtype=torch.float64)  # (G, q, F)
        padded = noise.unsqueeze(1).repeat(1, most)  # (G, q)
        for index, (unit, variance) in enumerate(zip(units, variances, strict=True)):
            directions[index, : len(unit)], padded[index, : len(unit)] = unit, variance
        counts = torch.tensor([part.count for part in parts], dtype=torch.float64)
        return cls(torch.stack(means), directions, padded, noise, counts / counts.sum())

    @classmethod
    def stored(cls, tensors: Mapping[str, Tensor], prefix: str = "inputs") -> "InputDensity":
        """From ``tensors``."""
        return cls(*(tensors[f"{prefix}.{entry.name}"].double() for entry in fields(InputDensity)))

    def tensors(self, prefix: str = "inputs") -> dict[str, Tensor]:
        """To be stored."""
        return {f"{prefix}.{entry.name}": getattr(self, entry.name).float() for entry in fields(InputDensity)}

    def draw(self, count: int, *, generator: Generator) -> Tensor:
        """Random inputs (count, F) from the density."""
        which = torch.multinomial(self.share, count, replacement=True, generator=generator)  # (n,)
        noise = torch.randn(count, self.mean.shape[1], generator=generator, dtype=torch.float64)
        units = self.directions[which]  # (n, q, F)
        along = torch.einsum("nf,nqf->nq", noise, units)
        stretch = (self.variances[which].sqrt() - self.noise[which].sqrt().unsqueeze(1)) * along  # (n, q)
        spread = self.noise[which].sqrt().unsqueeze(1) * noise + torch.einsum("nq,nqf->nf", stretch, units)
        return self.mean[which] + spread

    def costs(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """-log p(x), and the log squared distance to the nearest Gaussian's principal subspace: (N, F) -> (N,)."""
        wide = x.shape[1:].numel() > PRECISE
        density = self._as(torch.float32) if wide else self
        parts = [density._costs(part.flatten(1).to(density.mean.dtype)) for part in x.split(AT_ONCE)]
        costs, residuals = zip(*parts, strict=True) if parts else ((torch.zeros(0),), (torch.zeros(0),))
        return torch.cat(costs), torch.cat(residuals)

    def _as(self, dtype: torch.dtype) -> "InputDensity":
        return InputDensity(*(getattr(self, entry.name).to(dtype) for entry in fields(self)))

    def _costs(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """For inputs (B, F) of the density's own precision."""
        log_densities, residuals = self.by_gaussian(x)
        cost = -log_densities.logsumexp(0)  # (G, B) -> (B,)
        return cost, residuals.amin(0).clamp_min(SMALLEST_SQUARE).log()

    def by_gaussian(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Of each Gaussian, log share times density, and the squared distance to its subspace: (B, F) -> (G, B)."""
        features, directions = x.shape[1], self.directions.shape[1]
        half = features // 2  # the residual needs directions that are left over
        squares, along = self._squares_and_directions(x)  # (G, B), (G, B, q)
        rest = (squares - along.square().sum(2)).clamp_min(0)  # (G, B)
        distance = (along.square() / self.variances.unsqueeze(1)).sum(2) + rest / self.noise.unsqueeze(1)  # (G, B)
        volume = self.variances.log().sum(1) + (features - directions) * self.noise.log() + features * log(2 * pi)
        log_densities = (self.share.log() - 0.5 * volume).unsqueeze(1) - 0.5 * distance  # (G, B)
        residuals = rest + along[..., half:].square().sum(2)  # (G, B)
        return log_densities.double(), residuals.double()

    def _squares_and_directions(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Squared distances to the means, and coordinates along the directions: (B, F) -> (G, B), (G, B, q)."""
        if x.shape[1] <= PRECISE:
            centred = x - self.mean.unsqueeze(1)  # (G, B, F)
            return centred.square().sum(2), centred @ self.directions.mT
        middle = self.mean.mean(0)  # near all means, so that the differences of squares lose few digits
        x, means = x - middle, self.mean - middle
        squares = x.square().sum(1) - 2 * means @ x.T + means.square().sum(1, keepdim=True)  # |x - m|^2; (G, B)
        offsets = (self.directions @ means.unsqueeze(2)).squeeze(2)  # (G, q)
        along = (x @ self.directions.flatten(0, 1).T).unflatten(1, offsets.shape) - offsets  # (B, G, q)
        return squares, along.transpose(0, 1)


def costs_together(densities: Sequence[InputDensity], x: Tensor) -> tuple[Tensor, Tensor]:
    """``InputDensity.costs`` of many densities, of which those of one shape are compared together: (N, F) -> (T, N)."""
    if x.shape[1:].numel() > PRECISE:  # of wide inputs, each takes long enough
        costs, residuals = zip(*(density.costs(x) for density in densities), strict=True)
        return torch.stack(costs), torch.stack(residuals)
    result = torch.zeros(2, len(densities), len(x), dtype=torch.float64)  # (2, T, N)
    by_shape: dict[torch.Size, list[int]] = {}
    for index, density in enumerate(densities):
        by_shape.setdefault(density.directions.shape, []).append(index)
    for shape, indices in by_shape.items():
        size = max(1, NUMBERS_AT_ONCE // max(shape[0] * shape[2] * min(len(x), AT_ONCE), 1))
        for part in torch.tensor(indices).split(size):
            few = [densities[index] for index in part.tolist()]
            merged = InputDensity(*(torch.cat([getattr(each, entry.name) for each in few]) for entry in fields(few[0])))
            for start in range(0, len(x), AT_ONCE):
                values = x[start : start + AT_ONCE].flatten(1).double()
                log_densities, residuals = (each.unflatten(0, (len(few), -1)) for each in merged.by_gaussian(values))
                stop = start + len(values)
                result[0, part, start:stop] = -log_densities.logsumexp(1)  # (t, G, B) -> (t, B)
                result[1, part, start:stop] = residuals.amin(1).clamp_min(SMALLEST_SQUARE).log()
    return result[0], result[1]


def input_density(
    parts: Callable[[], Iterable[tuple[Tensor, Tensor]]], classes: int, directions: int, components: int
) -> InputDensity:
    """From batches of inputs (B, ...) and class indices (B,), which are read twice; at most this many Gaussians per
    class.

    A class is divided by its nearest centre, found on its first examples.
    """
    examples = first_examples(parts, classes)
    centres = {label: _centres(of_class, directions, components) for label, of_class in examples.items()}
    gaussians = {label: [PrincipalDirections.empty(c.shape[1]) for _ in c] for label, c in centres.items()}
    for x, y in parts():
        for label, of_class in gaussians.items():
            groups = _grouped(x.flatten(1)[y == label].double(), centres[label])
            gaussians[label] = [part.updated(group, directions) for part, group in zip(of_class, groups, strict=True)]
    return InputDensity.of([part for of_class in gaussians.values() for part in of_class if part.count])


def first_examples(parts: Callable[[], Iterable[tuple[Tensor, Tensor]]], classes: int) -> dict[int, Tensor]:
    """Some examples (n, F) of each class that has any, by which it is divided into groups."""
    first: list[list[Tensor]] = [[] for _ in range(classes)]
    for x, y in parts():
        for label, rows in enumerate(first):
            if sum(map(len, rows)) < FIRST_EXAMPLES:
                rows.append(x.flatten(1)[y == label])
    examples = {label: torch.cat(rows)[:FIRST_EXAMPLES].double() for label, rows in enumerate(first)}
    return {label: rows for label, rows in examples.items() if len(rows)}


def _centres(x: Tensor, directions: int, most: int) -> Tensor:
    """The centres (k, F) of the groups that a class (n, F) is divided into: as many as describe unseen rows best.

    No group is smaller than ``SMALLEST_GROUP``, so that no centre is an example.
    """
    whole = x.mean(0, keepdim=True)  # (1, F)
    if len(x) < 2 * SMALLEST_GROUP or most == 1:
        return whole
    choices = [count for count in (1, 2, 4, 8, 16) if count <= min(most, len(x) // SMALLEST_GROUP)]
    if len(x) < FIRST_EXAMPLES:  # with more, every further group helps
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
        fitted, unseen = x[order[1::2]], x[order[::2]]
        costs = []
        for count in choices:
            groups = _grouped(fitted, k_means(fitted, count))
            parts = [PrincipalDirections.empty(x.shape[1]).updated(group, directions) for group in groups if len(group)]
            costs.append(float(InputDensity.of(parts).costs(unseen)[0].mean()))
        choices = [choices[costs.index(min(costs))]]
    centres = k_means(x, choices[-1])
    while len(centres) > 1:
        sizes = torch.tensor([len(group) for group in _grouped(x, centres)])
        if int(sizes.min()) >= SMALLEST_GROUP:
            return centres
        keep = torch.arange(len(centres)) != int(sizes.argmin())
        centres = centres[keep]  # its rows join the nearest of the others
    return whole


def _grouped(x: Tensor, centres: Tensor) -> list[Tensor]:
    nearest = torch.cdist(x, centres).argmin(1)  # (n, k) -> (n,)
    return [x[nearest == index] for index in range(len(centres))]


def k_means(x: Tensor, count: int) -> Tensor:
    """Centres (k, F) of groups of the rows of (n, F) [Lloyd 1982]; begins far apart, from the row nearest the mean."""
    start = int((x - x.mean(0)).square().sum(1).argmin())
    chosen = [start]
    while len(chosen) < count:
        chosen.append(int(torch.cdist(x, x[chosen]).amin(1).argmax()))
    centres = x[chosen]
    for _ in range(ROUNDS):
        groups, before = _grouped(x, centres), centres
        centres = torch.stack(
            [group.mean(0) if len(group) else centre for group, centre in zip(groups, centres, strict=True)]
        )
        if torch.equal(centres, before):  # further rounds would change nothing
            break
    return centres

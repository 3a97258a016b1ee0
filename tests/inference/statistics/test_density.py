"""Densities of inputs against Gaussians computed directly."""

from collections.abc import Callable, Iterable
from functools import partial

import pytest
import torch
from sklearn.covariance import oas
from torch import Generator, Tensor
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from metareplay.inference.statistics import density
from metareplay.inference.statistics.density import (
    VECTORS_PER_DIRECTION,
    InputDensity,
    PrincipalDirections,
    input_density,
    k_means,
    oracle_shrinkage,
)

Parts = Callable[[], Iterable[tuple[Tensor, Tensor]]]


def correlated(rng: Generator, rows: int, features: int) -> Tensor:
    """Vectors with directions of very different variance, far from the origin."""
    mixing = torch.randn(features, features, generator=rng, dtype=torch.float64) * torch.logspace(0, -2, features)
    return torch.randn(rows, features, generator=rng, dtype=torch.float64) @ mixing + 100.0


def streamed(x: Tensor, sizes: list[int], directions: int) -> PrincipalDirections:
    part = PrincipalDirections.empty(x.shape[1])
    for rows in x.split(sizes):
        part = part.updated(rows, directions)
    return part


def covariance(gaussian: tuple[Tensor, Tensor, Tensor, float]) -> Tensor:
    """The covariance that directions, their variances and the noise stand for (F, F)."""
    mean, units, variances, noise = gaussian
    along = units.T @ (variances.unsqueeze(1) * units)
    return along + noise * (torch.eye(len(mean), dtype=torch.float64) - units.T @ units)


def parts_of(x: Tensor, y: Tensor, size: int) -> Parts:
    return partial(lambda: zip(x.split(size), y.split(size), strict=True))


@pytest.mark.parametrize("sizes", [[90], [1, 1, 3, 85], [30, 30, 30]])
def test_parts_give_what_the_whole_gives(sizes: list[int], rng: Generator) -> None:
    x = correlated(rng, 90, 6)
    part = streamed(x, sizes, 6)
    torch.testing.assert_close(part.mean, x.mean(0))
    scatter = (x - x.mean(0)).T @ (x - x.mean(0))
    torch.testing.assert_close(part.factors.T @ part.factors, scatter, rtol=1e-8, atol=1e-8 * float(scatter.max()))
    assert part.rest == pytest.approx(0.0, abs=1e-8 * float(scatter.trace()))
    few = streamed(x, sizes, 2)  # nothing of the variance is lost, wherever it is counted
    assert float(few.factors.square().sum()) + few.rest == pytest.approx(float(scatter.trace()), rel=1e-9)
    best = torch.linalg.eigvalsh(scatter)[-2:].sum()
    assert 0.9 * float(best) < float(few.factors.square().sum()) <= float(best) * (1 + 1e-9)


@pytest.mark.parametrize(("rows", "features"), [(40, 5), (28, 7), (300, 60)])
def test_shrinkage_is_the_oracle_approximating_one(rows: int, features: int, rng: Generator) -> None:
    x = correlated(rng, rows, features)
    sample = torch.cov(x.T, correction=0)
    trace, square = float(sample.trace()), float((sample @ sample).trace())
    share = oracle_shrinkage(trace, square, rows, features)
    _, reference = oas(x.numpy())
    assert share == pytest.approx(reference, rel=3 / features)  # scikit-learn leaves out the terms of 2 / F
    expected = (1 - share) * sample + share * trace / features * torch.eye(features, dtype=torch.float64)
    actual = covariance(PrincipalDirections.empty(features).updated(x, features).gaussian())
    floor = 1e-4 * trace / features  # the smallest variance
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1.1 * floor)
    assert float(torch.linalg.eigvalsh(actual)[0]) >= floor * (1 - 1e-6)


def test_few_examples_have_few_directions(rng: Generator) -> None:
    """What the other directions explained counts as noise: no variance is lost."""
    x = correlated(rng, 30, 60)
    part = PrincipalDirections.empty(60).updated(x, 60)
    _, units, variances, noise = part.gaussian()
    assert len(part.factors) == 29
    assert len(units) == len(variances) == 30 // VECTORS_PER_DIRECTION
    assert noise > 0
    total = float(variances.sum()) + (60 - len(variances)) * noise
    assert total == pytest.approx(float(torch.cov(x.T, correction=0).trace()), rel=1e-6)


def test_vectors_that_do_not_vary_are_no_error() -> None:
    density = InputDensity.of([PrincipalDirections.empty(3).updated(torch.ones(4, 3), 2)])
    costs, residuals = density.costs(torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 2.0]]))
    assert costs.isfinite().all()
    assert residuals.isfinite().all()
    assert costs[0] < costs[1]
    assert oracle_shrinkage(0.0, 0.0, 4, 3) == 1.0
    assert oracle_shrinkage(2.0, 4.0, 4, 1) == 0.0


@pytest.mark.parametrize("directions", [2, 6])
def test_costs_are_those_of_the_mixture(directions: int, rng: Generator) -> None:
    """Classes of different size, one of them with too few examples to have as many directions as the others."""
    groups = [correlated(rng, rows, 6) + 3 * label for label, rows in enumerate((50, 30, 2))]
    parts = [PrincipalDirections.empty(6).updated(group, directions) for group in groups]
    density = InputDensity.of(parts)
    assert density.directions.shape == (3, directions, 6)
    assert not density.directions[2, 1:].any()  # two examples differ in one direction
    gaussians = [part.gaussian() for part in parts]
    mixture = MixtureSameFamily(
        Categorical(torch.tensor([50.0, 30.0, 2.0], dtype=torch.float64)),
        MultivariateNormal(
            torch.stack([gaussian[0] for gaussian in gaussians]), torch.stack([covariance(one) for one in gaussians])
        ),
    )
    x = torch.cat(groups)
    costs, residuals = density.costs(x)
    torch.testing.assert_close(costs, -mixture.log_prob(x), rtol=1e-6, atol=1e-6)
    distances = []
    for mean, units, _, _ in gaussians:
        centred = x - mean
        distances.append((centred - centred @ units.T @ units).square().sum(1))
    nearest = torch.stack(distances).amin(0)
    clear = nearest > 1e-4
    torch.testing.assert_close(residuals[clear], nearest[clear].log(), rtol=0, atol=1e-3)
    again = InputDensity.stored(density.tensors()).costs(x)[0]  # stored in float32
    torch.testing.assert_close(again, costs, rtol=1e-2, atol=0.1)


def test_batches_of_any_size_give_one_density(rng: Generator) -> None:
    x, y = correlated(rng, 200, 5), torch.arange(200) % 2
    whole, small = (input_density(parts_of(x, y, size), 3, 5, 1) for size in (200, 7))
    assert len(whole.mean) == len(small.mean) == 2  # the third class has no examples
    torch.testing.assert_close(whole.share, torch.tensor([0.5, 0.5], dtype=torch.float64))
    torch.testing.assert_close(small.costs(x)[0], whole.costs(x)[0], rtol=1e-7, atol=1e-7)


def test_a_class_is_divided_as_far_as_unseen_rows_are_described_better(rng: Generator) -> None:
    single = torch.randn(400, 4, generator=rng)
    double = single + 20 * (torch.rand(400, 1, generator=rng) < 0.5)
    y = torch.zeros(400, dtype=torch.int64)
    densities = [input_density(parts_of(x, y, 150), 1, 4, 4) for x in (single, double)]
    assert len(densities[0].mean) == 1
    assert len(densities[1].mean) == 2
    assert densities[1].mean.mean(1).sort().values.tolist() == pytest.approx([0.0, 20.0], abs=0.5)
    between = torch.full((1, 4), 10.0)
    assert float(densities[1].costs(between)[0]) > float(densities[1].costs(double)[0].max())
    assert len(input_density(parts_of(double, y, 150), 1, 4, 1).mean) == 1  # as many as permitted


def test_k_means_finds_separate_groups(rng: Generator) -> None:
    centres = torch.tensor([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [9.0, 9.0]])
    x = (centres.unsqueeze(1) + 0.5 * torch.randn(4, 30, 2, generator=rng)).flatten(0, 1)
    actual = k_means(x, 4)
    assert torch.cdist(centres, actual).amin(1).max() < 0.5


def test_k_means_ends_where_another_round_would_change_nothing(rng: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    x, rounds = torch.randn(60, 3, generator=rng), list[int]()
    grouped = density._grouped
    monkeypatch.setattr(density, "_grouped", lambda rows, centres: (rounds.append(1), grouped(rows, centres))[1])
    actual = k_means(x, 3)
    assert 1 < len(rounds) < density.ROUNDS
    assert torch.equal(torch.stack([group.mean(0) for group in grouped(x, actual)]), actual)

"""Densities of few columns: against Gaussians computed directly, and of shapes that one Gaussian cannot describe."""

from collections.abc import Callable, Iterable
from functools import partial
from math import pi

import pytest
import torch
from torch import Generator, Tensor
from torch.distributions import MultivariateNormal

from metareplay.inference.statistics.density import InputDensity, input_density
from metareplay.inference.statistics.few_columns import (
    SMALLEST_GROUP,
    common_covariance,
    density_of_rows,
    fitted,
    group_counts,
    left_out_costs,
)

Parts = Callable[[], Iterable[tuple[Tensor, Tensor]]]


def parts_of(x: Tensor, y: Tensor, size: int = 500) -> Parts:
    return partial(lambda: zip(x.split(size), y.split(size), strict=True))


def ring(rng: Generator, count: int) -> Tensor:
    angle, radius = 2 * pi * torch.rand(count, generator=rng), 3 + 0.2 * torch.randn(count, generator=rng)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1)


def zeros(count: int) -> Tensor:
    return torch.zeros(count, dtype=torch.int64)


def density_of(x: Tensor, y: Tensor, components: int = 16) -> InputDensity:
    classes = int(y.max()) + 1
    return density_of_rows(parts_of(x, y), classes, group_counts(parts_of(x, y), classes, components))


def test_a_class_of_one_group_is_a_gaussian_with_a_common_prior(rng: Generator) -> None:
    x = torch.randn(90, 3, generator=rng, dtype=torch.float64) @ torch.randn(3, 3, generator=rng, dtype=torch.float64)
    y = torch.arange(90) % 3 // 2  # 60 and 30
    density = density_of_rows(parts_of(x, y), 2, {0: 1, 1: 1})
    common = common_covariance([x[y == 0], x[y == 1]])
    expected = torch.zeros(90, dtype=torch.float64)
    for label in (0, 1):
        rows = x[y == label]
        scatter = (rows - rows.mean(0)).T @ (rows - rows.mean(0))
        covariance = (5 * common + scatter) / (5 + len(rows))
        expected += len(rows) / 90 * MultivariateNormal(rows.mean(0), covariance).log_prob(x).exp()
    torch.testing.assert_close(density.costs(x)[0], -expected.log(), rtol=1e-6, atol=1e-6)
    assert (density.variances.diff(dim=1) <= 0).all()  # the main directions first, as residuals need them


def test_a_ring_is_not_filled(rng: Generator) -> None:
    x, middle = ring(rng, 300), torch.zeros(1, 2)
    fine, coarse = density_of(x, zeros(300)), input_density(parts_of(x, zeros(300)), 1, 2, 4)
    assert len(fine.mean) > 4
    unseen = ring(rng, 500)
    assert float(fine.costs(unseen)[0].mean()) < float(coarse.costs(unseen)[0].mean()) - 0.2
    assert float(fine.costs(middle)[0]) > float(fine.costs(unseen)[0].quantile(0.99))


def test_one_group_is_enough_for_a_gaussian(rng: Generator) -> None:
    x = torch.randn(400, 4, generator=rng)
    assert group_counts(parts_of(x, zeros(400)), 1, 16) == {0: 1}


@pytest.mark.parametrize("count", [3, 15, 60, 400])
def test_no_mean_is_taken_over_too_few_rows(count: int, rng: Generator) -> None:
    x = ring(rng, count).double()
    groups = fitted(x, 16, common_covariance([x]))
    assert len(groups.mean) == 1 or float(groups.examples.min()) >= SMALLEST_GROUP
    assert float(torch.cdist(groups.mean, x).min()) > 0


def test_batches_of_any_size_give_one_density(rng: Generator) -> None:
    x, y = ring(rng, 200), torch.arange(200) % 2
    whole, small = (density_of_rows(parts_of(x, y, size), 3, {0: 4, 1: 4}) for size in (200, 7))
    torch.testing.assert_close(small.costs(x)[0], whole.costs(x)[0], rtol=1e-7, atol=1e-7)
    again = density_of_rows(parts_of(x, y, 200), 3, {0: 4, 1: 4})
    assert torch.equal(again.mean, whole.mean)


def test_more_rows_than_groups_are_found_by_count_too(rng: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups are found on the first rows, and shaped by all."""
    monkeypatch.setattr("metareplay.inference.statistics.density.FIRST_EXAMPLES", 100)
    x = torch.cat([torch.randn(100, 2, generator=rng), 2 * torch.randn(4000, 2, generator=rng)])
    density = density_of_rows(parts_of(x, zeros(4100)), 1, {0: 1})
    assert float(density.variances.mean()) == pytest.approx(4.0, rel=0.1)


def test_rows_that_do_not_vary_are_no_error() -> None:
    x = torch.ones(30, 3)
    density = density_of(x, zeros(30))
    costs, residuals = density.costs(torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 2.0]]))
    assert costs.isfinite().all()
    assert residuals.isfinite().all()
    assert costs[0] < costs[1]


def test_a_left_out_row_costs_what_the_others_say(rng: Generator) -> None:
    x, y = ring(rng, 60), torch.arange(60) % 2
    folds = list(torch.arange(60).chunk(4))
    costs = left_out_costs(x, y, folds, {0: 2, 1: 1})
    rest = torch.arange(60) >= 15
    others = density_of_rows(parts_of(x[rest], y[rest]), 2, {0: 2, 1: 1})
    torch.testing.assert_close(costs[:15], others.costs(x[:15])[0])


def test_inputs_drawn_from_a_density_are_like_those_it_was_taken_from(rng: Generator) -> None:
    density = density_of(ring(rng, 1000), zeros(1000))
    radius = density.draw(500, generator=rng).norm(dim=1)
    assert float(radius.mean()) == pytest.approx(3.0, abs=0.1)
    assert float(radius.std()) < 0.5

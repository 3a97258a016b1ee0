"""Standardisation is fixed by the first task."""

import pytest
import torch

from metareplay.scaling import Scaling


def table(rng: torch.Generator, rows: int = 200) -> torch.Tensor:
    return torch.randn(rows, 3, generator=rng) * torch.tensor([1.0, 50.0, 0.5]) + torch.tensor([0.0, 300.0, -2.0])


def test_columns_of_a_table_get_mean_zero_and_scale_one(rng: torch.Generator) -> None:
    x = table(rng) * torch.tensor([1.0, 0.05, 1.0])  # scales within a factor of ten of their mean
    scaled = Scaling.of(x, torch.zeros(200), regression=False).x(x)
    torch.testing.assert_close(scaled.mean(0), torch.zeros(3), rtol=0, atol=1e-4)
    torch.testing.assert_close(scaled.std(0, correction=0), torch.ones(3), rtol=1e-4, atol=0)


def test_later_data_use_the_scaling_of_the_first(rng: torch.Generator) -> None:
    x = table(rng)
    scaling = Scaling.of(x, torch.zeros(200), regression=False)
    assert torch.equal(scaling.x(x[:5]), scaling.x(x)[:5])
    assert scaling.x(x + 100).mean() > scaling.x(x).mean()


def test_a_column_that_hardly_varies_cannot_explode(rng: torch.Generator) -> None:
    x = torch.cat([torch.randn(100, 2, generator=rng), torch.full((100, 1), 7.0)], dim=1)
    later = x.clone()
    later[:, 2] = 8.0
    scaled = Scaling.of(x, torch.zeros(100), regression=False).x(later)
    assert scaled.isfinite().all()
    assert scaled[:, 2].abs().max() < 20


@pytest.mark.parametrize("shape", [(1, 4), (6, 1), (1, 1), (5, 3)])
def test_constant_data_stay_finite(shape: tuple[int, int]) -> None:
    x = torch.full(shape, 3.0)
    scaling = Scaling.of(x, x, regression=True)
    assert torch.equal(scaling.x(x), torch.zeros(shape))
    assert torch.equal(scaling.y(x), torch.zeros(shape))


def test_images_have_one_mean_and_one_scale(rng: torch.Generator) -> None:
    x = torch.rand(20, 1, 4, 4, generator=rng)
    x[:, :, 0] = 0.0  # an edge that is always black
    scaling = Scaling.of(x, torch.zeros(20), regression=False)
    assert scaling.tensors["x_mean"].shape == scaling.tensors["x_scale"].shape == ()
    torch.testing.assert_close(scaling.x(x).mean(), torch.tensor(0.0), rtol=0, atol=1e-5)


def test_targets_are_scaled_in_regression_only(rng: torch.Generator) -> None:
    x, y = table(rng), torch.randn(200, 2, generator=rng) * 9 + 40
    assert torch.equal(Scaling.of(x, y, regression=False).y(y), y)
    scaling = Scaling.of(x, y, regression=True)
    torch.testing.assert_close(scaling.y(y).std(0, correction=0), torch.ones(2))


def test_predictions_come_back_in_the_users_units(rng: torch.Generator) -> None:
    y = torch.randn(200, 2, generator=rng) * 9 + 40
    scaling = Scaling.of(table(rng), y, regression=True)
    mean, std = scaling.undo_y(scaling.y(y), torch.ones(200, 2))
    torch.testing.assert_close(mean, y)
    torch.testing.assert_close(std, y.std(0, correction=0).expand(200, 2))


def test_nothing_is_scaled_without_a_scaling(rng: torch.Generator) -> None:
    x = table(rng)
    empty = Scaling({})
    assert empty.x(x) is x
    assert empty.y(x) is x
    assert empty.undo_y(x, x) == (x, x)

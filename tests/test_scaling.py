"""Standardisation is fixed by the first task."""

import pytest
import torch

from metareplay.scaling import Scaling


def table(rng: torch.Generator, rows: int = 200) -> torch.Tensor:
    return torch.randn(rows, 3, generator=rng) * torch.tensor([1.0, 50.0, 0.5]) + torch.tensor([0.0, 300.0, -2.0])


def test_columns_of_a_table_get_mean_zero_and_scale_one(rng: torch.Generator) -> None:
    x = table(rng) * torch.tensor([1.0, 100.0, 0.001])  # each column has its own unit
    scaled = Scaling.of(x, torch.zeros(200), regression=False).x(x)
    torch.testing.assert_close(scaled.mean(0), torch.zeros(3), rtol=0, atol=1e-4)
    torch.testing.assert_close(scaled.std(0, correction=0), torch.ones(3), rtol=1e-4, atol=0)


def test_later_data_use_the_scaling_of_the_first(rng: torch.Generator) -> None:
    x = table(rng)
    scaling = Scaling.of(x, torch.zeros(200), regression=False)
    assert torch.equal(scaling.x(x[:5]), scaling.x(x)[:5])
    assert scaling.x(x + 100).mean() > scaling.x(x).mean()


def test_a_rare_value_cannot_explode(rng: torch.Generator) -> None:
    x = torch.cat([torch.randn(200, 1, generator=rng), torch.zeros(200, 1)], dim=1)
    x[7, 1] = 1.0  # a category that one row in two hundred has
    later = x.clone()
    later[:, 1] = 1.0
    assert Scaling.of(x, torch.zeros(200), regression=False).x(later)[:, 1].max() < 5


def constant_at_first(rng: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    first = torch.cat([torch.randn(100, 2, generator=rng), torch.full((100, 2), 7.0)], dim=1)
    later = torch.cat([torch.randn(100, 2, generator=rng), 2000 + 300 * torch.randn(100, 2, generator=rng)], dim=1)
    later[:, 3] = 7.0
    return first, later


def test_a_constant_column_gets_its_scale_when_it_varies(rng: torch.Generator) -> None:
    first, later = constant_at_first(rng)
    scaling = Scaling.of(first, torch.zeros(100), regression=False)
    assert scaling.tensors["x_open"].tolist() == [0.0, 0.0, 1.0, 1.0]
    followed = scaling.following(later)
    assert followed.tensors["x_open"].tolist() == [0.0, 0.0, 0.0, 1.0]
    torch.testing.assert_close(followed.x(later)[:, 2].square().mean(), torch.tensor(1.0), rtol=1e-4, atol=0)
    again = followed.following(2 * later)
    assert "x_open" not in again.tensors
    assert torch.equal(again.tensors["x_scale"][:3], followed.tensors["x_scale"][:3])  # once found, it stays


def test_inputs_of_the_first_task_stay_the_same_when_a_constant_column_varies(rng: torch.Generator) -> None:
    first, later = constant_at_first(rng)
    scaling = Scaling.of(first, torch.zeros(100), regression=False)
    assert torch.equal(scaling.following(later).x(first), scaling.x(first))
    assert scaling.following(first) is scaling


def test_columns_of_one_unit_are_not_blown_up(rng: torch.Generator) -> None:
    x = torch.randn(100, 3, generator=rng) * torch.tensor([1.0, 1.0, 1e-3])
    scaled = Scaling.of(x, torch.zeros(100), regression=False, alike=True).x(x)
    assert scaled[:, 2].std() < 0.1


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

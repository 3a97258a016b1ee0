import pytest
import torch
from torch import Tensor

from metareplay.inference.calibration.linear import linear_answers, linear_fit, share_of_network


@pytest.fixture
def rows() -> Tensor:
    """Columns in different units, one of them constant."""
    x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return x * torch.tensor([1.0, 1000.0, 0.01, 0.0]) + torch.tensor([0.0, 5000.0, 3.0, 7.0])


def test_linear_targets_are_found(rows: Tensor) -> None:
    y = torch.stack([rows[:, 0] + 0.01 * rows[:, 1] - 4, 50 * rows[:, 2]], 1)
    fitted = linear_fit(rows, y)
    assert fitted.coefficients.shape == (5, 2)
    torch.testing.assert_close(linear_answers(fitted.coefficients, rows), y, rtol=1e-3, atol=1e-2)


def test_an_example_left_out_is_answered_without_it(rows: Tensor) -> None:
    """But for the ridge, the centre and the scale, which are those of all."""
    y = rows[:, :1] + torch.randn(40, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    left_out = linear_fit(rows, y).left_out
    for row in range(0, 40, 7):
        rest = torch.arange(40) != row
        without = linear_fit(rows[rest], y[rest]).coefficients
        assert float(y[row] - linear_answers(without, rows[row : row + 1])) == pytest.approx(
            float(left_out[row]), abs=0.15
        )


def test_targets_without_any_relation_are_answered_by_their_mean(rows: Tensor) -> None:
    y = 10 + torch.randn(40, 1, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    answers = linear_answers(linear_fit(rows, y).coefficients, rows)
    assert float(answers.std()) < 0.4
    assert float(answers.mean()) == pytest.approx(float(y.mean()), abs=0.2)


def test_shares_follow_mistakes() -> None:
    generator = torch.Generator().manual_seed(0)
    noise, network, linear = (torch.randn(200, 1, generator=generator, dtype=torch.float64) for _ in range(3))
    worse = share_of_network(noise + 1.0 * network, noise + 0.1 * linear)
    better = share_of_network(noise + 0.1 * network, noise + 1.0 * linear)
    alike = share_of_network(noise + 0.5 * network, noise + 0.5 * linear)
    assert worse < 0.2
    assert better == 1
    assert 0.5 < alike < 0.8  # in doubt the network
    assert share_of_network(noise, noise) == 1

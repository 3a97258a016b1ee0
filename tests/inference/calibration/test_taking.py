import pytest
import torch

from metareplay.benchmarks.base import TaskData
from metareplay.inference.calibration.taking import class_calibration, target_calibration
from metareplay.inference.calibration.targets import TargetCalibration

NONE = TaskData(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64))


def separable(count: int) -> TaskData:
    x = torch.randn(count, 2, generator=torch.Generator().manual_seed(0))
    return TaskData(x, (x[:, 0] > 0).long())


def certain(x: torch.Tensor, *, wrong: bool = False) -> torch.Tensor:
    """Outputs (1, N, 2) of a network that is certain of the class, or of the other one."""
    right = 10 * x[:, :1].sign()
    return (torch.cat([right, -right], 1) if wrong else torch.cat([-right, right], 1)).unsqueeze(0)


def confidence(wrong: bool, held_out: TaskData = NONE) -> float:
    data = separable(100)
    fitted = class_calibration(
        lambda x: certain(x, wrong=wrong), data, held_out, 2, generator=torch.Generator().manual_seed(0)
    )
    return float(fitted.log_likelihoods(certain(data.x)).exp().max())


def test_a_network_that_has_not_learned_is_not_trusted() -> None:
    assert confidence(wrong=False) > 0.9
    assert confidence(wrong=True) < 0.6


def test_held_out_examples_count() -> None:
    held_out = separable(60)
    mistaken = TaskData(held_out.x, 1 - held_out.y)
    assert confidence(False, mistaken) < confidence(False) < confidence(False, held_out) + 0.02


def nothing(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros(1, len(x), 1)


@pytest.mark.parametrize("linear", [False, True])
def test_a_network_that_has_not_learned_has_wide_intervals(linear: bool) -> None:
    x = torch.randn(60, 1, generator=torch.Generator().manual_seed(0))
    data, none = TaskData(x, 5 + (20 * x).sin()), TaskData(x[:0], x[:0])
    fitted = target_calibration(nothing, data, none, linear=linear, generator=torch.Generator())
    assert float(fitted.noise) > (0.6 if linear else 4)  # a constant is linear
    assert (fitted.linear is not None) == linear


@pytest.mark.parametrize("held", [0, 20])
def test_a_linear_fit_answers_where_a_network_follows_chance(held: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x, noise = torch.randn(100 + held, 8, generator=generator), torch.randn(100 + held, 1, generator=generator)
    y = x[:, :1] + noise
    missed = 0.3 * noise  # on its own examples

    def knows_by_heart(inputs: torch.Tensor) -> torch.Tensor:
        of_input = (inputs.unsqueeze(1) == x).all(2).double().argmax(1)
        away = 2 * noise[of_input].flip(0)  # on others
        own = of_input < 100
        return (y[of_input] - torch.where(own.unsqueeze(1), missed[of_input], away)).unsqueeze(0)

    used, held_out = TaskData(x[:100], y[:100]), TaskData(x[100:], y[100:])
    fitted = target_calibration(knows_by_heart, used, held_out, generator=generator)
    assert fitted.share is not None
    assert float(fitted.share) < 0.3
    assert 0.8 < float(fitted.noise) < 1.3
    new = torch.randn(500, 8, generator=generator)
    assert (fitted.mean(new, torch.zeros(500, 1)) - new[:, :1]).square().mean() < 0.3
    again = TargetCalibration.stored(fitted.tensors())
    assert torch.equal(again.mean(new, torch.ones(500, 1)), fitted.mean(new, torch.ones(500, 1)))


def test_a_network_that_knows_better_answers_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(140, 2, generator=generator) * 4 - 2
    truth = (2 * x[:, :1]).sin() + x[:, 1:].square()
    data, none = TaskData(x, truth + 0.1 * torch.randn(140, 1, generator=generator)), TaskData(x[:0], x[:0])

    def network(inputs: torch.Tensor) -> torch.Tensor:
        return ((2 * inputs[:, :1]).sin() + inputs[:, 1:].square()).unsqueeze(0)

    fitted = target_calibration(network, data, none, generator=generator)
    assert fitted.share is None or float(fitted.share) > 0.98


def test_images_and_wide_tables_have_no_linear_fit() -> None:
    x = torch.randn(20, 1, 3, 3, generator=torch.Generator().manual_seed(0))
    for inputs in (x, torch.randn(20, 1001)):
        data = TaskData(inputs, inputs.flatten(1)[:, :1])
        none = TaskData(inputs[:0], data.y[:0])
        fitted = target_calibration(nothing, data, none, generator=torch.Generator())
        assert fitted.share is None
        assert set(fitted.tensors()) == {"noise", "scores", "centre", "spread"}

import torch

from metareplay.benchmarks.base import TaskData
from metareplay.inference.calibration.taking import class_calibration, target_calibration

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


def test_a_network_that_has_not_learned_has_wide_intervals() -> None:
    x = torch.randn(60, 1, generator=torch.Generator().manual_seed(0))
    data, none = TaskData(x, 5 + x), TaskData(x[:0], x[:0])
    fitted = target_calibration(lambda x: torch.zeros(1, len(x), 1), data, none, generator=torch.Generator())
    assert float(fitted.noise) > 4

import pytest
import torch

from metareplay.inference.calibration.targets import MOST_SCORES, TargetCalibration, fit_targets


@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.95])
@pytest.mark.parametrize("count", [30, 300, 3000])
def test_intervals_contain_what_they_promise(coverage: float, count: int) -> None:
    generator = torch.Generator().manual_seed(0)
    inside = []
    for _ in range(40 if count < 1000 else 5):  # heavy tails
        residuals = torch.randn(count + 500, 1, generator=generator) / (
            torch.rand(count + 500, 1, generator=generator).clamp_min(0.05)
        )
        std = torch.full_like(residuals, 0.1)
        fitted = fit_targets(residuals[:count], std[:count], residuals)
        total = (fitted.noise.square() + 0.01).sqrt()
        inside.append((residuals[count:].abs() <= fitted.reach(coverage) * total).double().mean())
    assert coverage - 0.03 < float(torch.stack(inside).mean()) < coverage + 0.05
    assert len(fitted.scores) <= MOST_SCORES


def test_too_few_residuals_give_wide_intervals() -> None:
    fitted = fit_targets(torch.tensor([[0.1], [-0.1], [0.1]]), torch.zeros(3, 1), torch.randn(3, 1))
    assert fitted.reach(0.95).item() > 2.5
    assert fitted.reach(0.5).item() < 1.5


def test_noise_is_what_weight_samples_do_not_explain() -> None:
    residuals = torch.randn(2000, 2, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 2.0])
    fitted = fit_targets(residuals, torch.full((2000, 2), 0.6), residuals)
    assert fitted.noise.tolist() == pytest.approx([0.8, (4 - 0.36) ** 0.5], rel=0.06)
    again = TargetCalibration.stored(fitted.tensors())
    assert all(torch.equal(value, again.tensors()[name]) for name, value in fitted.tensors().items())

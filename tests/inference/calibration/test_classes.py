import pytest
import torch

from metareplay.evaluation.uncertainty import calibration_error, reliability
from metareplay.inference.calibration.classes import ClassCalibration, fit_classes, frequencies
from metareplay.inference.predictive import log_predictive

EVEN = torch.full((3,), 1 / 3, dtype=torch.float64)


def three_classes(count: int, *, overconfident: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs (1, N, 3) that are too large by a factor, and labels."""
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(count, 3, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    return overconfident * logits.unsqueeze(0), labels


@pytest.mark.parametrize("factor", [0.5, 1.0, 4.0])
def test_overconfidence_is_undone(factor: float) -> None:
    outputs, labels = three_classes(4000, overconfident=factor)
    half = slice(0, 2000)
    right = outputs[0, half].argmax(1) == labels[half]
    fitted = fit_classes(outputs[:, half], right, torch.ones(2000, dtype=torch.float64), EVEN)
    assert float(fitted.temperature) == pytest.approx(factor, rel=0.35)
    probabilities = log_predictive(fitted.log_likelihoods(outputs[:, 2000:])).exp()
    torch.testing.assert_close(probabilities.sum(1), torch.ones(2000, dtype=torch.float64))
    confidence, chosen = probabilities.max(1)
    assert calibration_error(reliability(confidence, chosen == labels[2000:])) < 4.0


def test_few_right_answers_do_not_make_certain() -> None:
    outputs = torch.zeros(1, 20, 3, dtype=torch.float64)
    outputs[..., 0] = 50.0
    right, ones = torch.ones(20, dtype=torch.bool), torch.ones(20, dtype=torch.float64)
    few = fit_classes(outputs[:, :5], right[:5], ones[:5], EVEN).log_likelihoods(outputs).exp().max()
    more = fit_classes(outputs, right, ones, EVEN).log_likelihoods(outputs).exp().max()
    assert 0.8 < few < more < 0.999


def test_frequencies_are_never_zero() -> None:
    assert frequencies(torch.tensor([0, 0]), 2).tolist() == [0.75, 0.25]


def test_a_single_class_is_certain() -> None:
    alone = ClassCalibration(
        torch.tensor(2.0), torch.tensor(0.1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    )
    assert torch.equal(alone.log_likelihoods(torch.randn(2, 3, 1)), torch.zeros(2, 3, 1, dtype=torch.float64))

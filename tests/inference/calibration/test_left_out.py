import torch

from metareplay.inference.calibration.left_out import (
    RIDGES,
    fits,
    residuals_when_left_out,
    right_when_left_out,
)


def test_what_is_left_out_is_predicted_as_if_it_had_never_been_there() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(12, 2, generator=generator, dtype=torch.float64)
    y = torch.randn(12, 1, generator=generator, dtype=torch.float64)
    standard = (x - x.mean(0)) / x.std(0, correction=0)
    kernel = standard @ standard.T + 1e-9 * torch.eye(12, dtype=torch.float64)
    diagonal = kernel.diagonal().mean()
    kernel = kernel + diagonal
    linear = next(iter(fits(x, y)))
    for ridge, fit in list(zip(RIDGES * diagonal, linear, strict=True))[::5]:
        for row in range(12):
            rest = torch.arange(12) != row
            weights = torch.linalg.solve(kernel[rest][:, rest] + ridge * torch.eye(11, dtype=torch.float64), y[rest])
            torch.testing.assert_close(fit.left_out[row], y[row] - kernel[row, rest] @ weights, rtol=1e-5, atol=1e-7)


def test_labels_by_chance_are_not_found() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(100, 5, generator=generator)
    right = right_when_left_out(x, torch.randint(2, (100,), generator=generator), 2)
    assert 0.3 < right.double().mean() < 0.7
    assert right_when_left_out(x, (x[:, 0] > 0).long(), 2).double().mean() > 0.9


def test_a_closer_fit_errs_more_on_what_is_left_out() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(80, 6, generator=generator)
    y = x[:, :1] + torch.randn(80, 1, generator=generator)
    modest, close = torch.full((80, 1), 0.9), torch.full((80, 1), 0.01)
    sizes = [residuals_when_left_out(x, y, residuals).square().mean() for residuals in (modest, close)]
    assert 0.8 < sizes[0] < 2.2  # the noise is 1
    assert sizes[1] > 1.2 * sizes[0]


def test_fits_that_are_as_close_count_the_same() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 3, generator=generator)
    y = torch.cat([(2 * x[:, :1]).sin(), x[:, 1:2]], 1) + 0.1 * torch.randn(60, 2, generator=generator)
    fitted = torch.full((60, 2), 0.05)
    found = residuals_when_left_out(x, y, fitted).square().mean(0)
    closest = [
        min(of_kernel, key=lambda fit: abs(float(fit.residuals.square().mean()) - 0.0025)) for of_kernel in fits(x, y)
    ]
    alike = [
        fit.left_out.square().mean(0)
        for fit in closest
        if 0.0025 / 1.69 < fit.residuals.square().mean() < 0.0025 * 1.69
    ]
    assert len(alike) > 1
    torch.testing.assert_close(found, torch.stack(alike).mean(0))

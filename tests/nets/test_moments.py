"""Means and covariances of an MLP's outputs without samples."""

import pytest
import torch
from torch import Generator, Tensor, nn

from metareplay.nets.activations import ACTIVATIONS
from metareplay.nets.linearised import linearised_mlp_outputs
from metareplay.nets.mlp import MLP
from metareplay.nets.moments import activation_moments, mlp_output_moments
from metareplay.nets.weights import WeightSpec, run_flat


def gaussian_mlp(
    hidden: tuple[int, ...], activation: str, rng: Generator
) -> tuple[MLP, WeightSpec, Tensor, Tensor, Tensor]:
    """A network in float64, means and scales of its weights, and inputs."""
    mlp = MLP((5,), hidden, 3, activation).double()
    spec = WeightSpec.of(mlp)
    mean = 0.4 * torch.randn(spec.numel, generator=rng, dtype=torch.float64)
    scale = 0.05 + 0.2 * torch.rand(spec.numel, generator=rng, dtype=torch.float64)
    return mlp, spec, mean, scale, torch.randn(2, 5, generator=rng, dtype=torch.float64)


def sampled_moments(
    mlp: MLP, spec: WeightSpec, mean: Tensor, scale: Tensor, x: Tensor, rng: Generator, blocks: int = 10
) -> tuple[Tensor, Tensor]:
    """Mean and covariance of the outputs over weight samples, blocks of 10,000."""
    parts = []
    with torch.no_grad():
        for _ in range(blocks):
            weights = mean + scale * torch.randn(10_000, spec.numel, generator=rng, dtype=torch.float64)
            parts.append(run_flat(mlp, spec, weights, x))
    outputs = torch.cat(parts)
    away = outputs - outputs.mean(0)
    return outputs.mean(0), torch.einsum("snc,snd->ncd", away, away) / len(outputs)


@pytest.mark.parametrize(
    ("hidden", "activation", "tolerance"),
    [
        # the first two are exact: the tolerances are a few standard errors of the samples' variances
        ((8,), "relu", 0.02),
        ((8, 6), "linear", 0.03),
        ((12, 10), "relu", 0.15),  # Gaussian sums of a dozen terms are the worst case
        ((8, 6), "tanh", 0.1),
    ],
)
def test_against_many_samples(hidden: tuple[int, ...], activation: str, tolerance: float, rng: Generator) -> None:
    mlp, spec, mean, scale, x = gaussian_mlp(hidden, activation, rng)
    found_mean, actual = mlp_output_moments(mlp, spec, mean, scale, x)
    blocks = 10 if tolerance < 0.05 else 2  # the others' error is that of the approximation
    true_mean, true = sampled_moments(mlp, spec, mean, scale, x, rng, blocks)
    std = true.diagonal(dim1=1, dim2=2).sqrt()  # (B, C)
    assert float(((found_mean - true_mean) / std).abs().max()) < tolerance
    assert float(((actual - true) / (std.unsqueeze(1) * std.unsqueeze(2))).abs().max()) < tolerance


@pytest.mark.parametrize("hidden", [(), (4,), (4, 3)])
def test_linear_networks_are_exact(hidden: tuple[int, ...], rng: Generator) -> None:
    """E and Cov of W_3 W_2 W_1 x, worked out with the full covariances of every layer."""
    mlp, spec, mean, scale, x = gaussian_mlp(hidden, "linear", rng)
    found_mean, actual = mlp_output_moments(mlp, spec, mean, scale, x)
    weights, variances = spec.unflatten(mean), spec.unflatten(scale.square())
    for row in range(len(x)):
        h, covariance = x[row], torch.zeros(5, 5, dtype=torch.float64)
        for layer in range(len(mlp.layers)):
            weight, bias = f"layers.{layer}.weight", f"layers.{layer}.bias"
            own = variances[weight] @ (h.square() + covariance.diagonal()) + variances[bias]
            covariance = weights[weight] @ covariance @ weights[weight].T + own.diag()
            h = weights[weight] @ h + weights[bias]
        torch.testing.assert_close(found_mean[row], h)
        torch.testing.assert_close(actual[row], covariance)


def test_scales_near_zero_leave_the_linearised_network(rng: Generator) -> None:
    mlp, spec, mean, scale, x = gaussian_mlp((12, 10), "relu", rng)
    mlp, mean, scale, x = mlp.float(), mean.float(), 1e-4 * scale.float(), x.float()
    actual = mlp_output_moments(mlp, spec, mean, scale, x)
    expected = linearised_mlp_outputs(mlp, spec, mean, scale, x)
    torch.testing.assert_close(actual[0], expected[0], rtol=0, atol=1e-5)
    torch.testing.assert_close(actual[1], expected[1], rtol=1e-3, atol=1e-3 * float(expected[1].abs().max()))


def test_some_outputs_alone(rng: Generator) -> None:
    mlp, spec, mean, scale, x = gaussian_mlp((6,), "relu", rng)
    every, some = (mlp_output_moments(mlp, spec, mean, scale, x, columns) for columns in (slice(None), slice(1, 3)))
    torch.testing.assert_close(some[0], every[0][:, 1:3])
    torch.testing.assert_close(some[1], every[1][:, 1:3, 1:3])


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (1.5, 0.5), (-2.0, 1.0), (30.0, 0.1), (-30.0, 0.1), (0.3, 3.0)])
def test_moments_of_activations(name: str, mean: float, std: float) -> None:
    activation: nn.Module = ACTIVATIONS[name]()
    points = torch.linspace(-9, 9, 200_001, dtype=torch.float64)
    masses = torch.exp(-0.5 * points.square())
    masses = masses / masses.sum()
    a = mean + std * points
    values = activation(a)
    slope = torch.func.jvp(activation, (a,), (torch.ones_like(a),))[1]
    first = (masses * values).sum()
    expected = torch.stack([first, (masses * (values - first).square()).sum(), (masses * slope).sum()])
    at = torch.full((1, 1), mean, dtype=torch.float64), torch.full((1, 1), std**2, dtype=torch.float64)
    actual = torch.stack([part.squeeze() for part in activation_moments(activation, *at)])
    exact = name in ("relu", "linear")
    torch.testing.assert_close(
        actual, expected, rtol=0, atol=1e-4 if exact else 1e-3 if std <= 1 and name != "elu" else 0.1
    )


def test_single_precision_keeps_small_variances() -> None:
    """Var[max(0, a)] = E[..^2] - E[..]^2 would lose all digits where a is far above zero."""
    mean, variance = torch.tensor([[100.0, 1000.0, -100.0]]), torch.tensor([[1e-4, 1e-2, 1e-4]])
    actual = activation_moments(nn.ReLU(), mean, variance)[1]
    torch.testing.assert_close(actual, torch.tensor([[1e-4, 1e-2, 0.0]]))

"""The spectral Stein gradient estimator against known scores. Seeds are fixed; each test states its tolerances."""

import pytest
import torch
from torch import Generator, Tensor, nn

from metareplay.nets.weights import WeightSpec
from metareplay.posteriors.families.implicit import ImplicitFamily, ImplicitSettings
from metareplay.posteriors.matching.ssge import SSGEMatching, SSGESettings
from metareplay.posteriors.matching.ssge_score import (
    JITTER,
    median_distance,
    number_of_eigenfunctions,
    squared_distances,
    ssge_score,
)
from metareplay.posteriors.priors.gaussian import GaussianPrior


def gaussian(size: int, count: int, rng: Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Samples of a Gaussian, other points drawn from it, its means and scales as columns."""
    moments = torch.stack([torch.linspace(-1, 1, size), torch.linspace(0.5, 1.5, size)])
    draws = moments[0] + moments[1] * torch.randn(2, count, size, generator=rng)
    return draws[0], draws[1], moments


@pytest.mark.parametrize("own", [True, False], ids=["own-samples", "other-points"])
@pytest.mark.parametrize(("size", "count", "width"), [(1, 200, 1.0), (2, 200, None), (5, 100, None), (10, 100, 5.0)])
def test_the_score_of_a_gaussian(size: int, count: int, width: float | None, own: bool) -> None:
    """Means over ten draws: correlation above 0.9, slope within 0.15 of 1, squared error below 0.2 of the score's."""
    figures = []
    for seed in range(10):
        samples, others, (mean, scale) = gaussian(size, count, Generator().manual_seed(seed))
        points = samples if own else others
        actual, exact = ssge_score(samples, points, width=width, ratio=0.95), -(points - mean) / scale.square()
        assert actual.shape == points.shape
        correlation = torch.corrcoef(torch.stack([actual.flatten(), exact.flatten()]))[0, 1]
        slope, error = (
            (actual * exact).sum() / exact.square().sum(),
            (actual - exact).square().sum() / exact.square().sum(),
        )
        figures.append(torch.stack([correlation, slope, error]))
    correlation, slope, error = torch.stack(figures).mean(0).tolist()
    assert correlation > 0.9
    assert abs(slope - 1) < 0.15
    assert error < 0.2


def test_it_sees_more_than_a_gaussian(rng: Generator) -> None:
    """Two modes at -2 and 2 push apart: between them the score leads outwards, beyond them inwards."""
    centres = torch.where(torch.rand(300, 1, generator=rng) < 0.5, -2.0, 2.0)
    samples = centres + 0.7 * torch.randn(300, 1, generator=rng)
    points = torch.tensor([[-3.0], [-1.2], [1.2], [3.0]])
    assert ssge_score(samples, points, width=1.5, ratio=0.98).sign().flatten().tolist() == [1, -1, 1, -1]


def test_far_from_the_samples_the_score_vanishes_or_is_a_gaussians(rng: Generator) -> None:
    samples, _, _ = gaussian(4, 100, rng)
    far = samples + 50
    assert ssge_score(samples, far, width=1.0).abs().max() < 1e-12
    expected = -(far - samples.mean(0)) / samples.var(0)
    torch.testing.assert_close(ssge_score(samples, far, width=1.0, around_gaussian=True), expected)


def test_around_a_gaussian_the_score_of_one_is_better() -> None:
    """At points shifted by two standard deviations: mean squared error below a third of that of plain SSGE."""
    errors = []
    for around in (False, True):
        each = []
        for seed in range(10):
            samples, others, (mean, scale) = gaussian(3, 50, Generator().manual_seed(seed))
            points = others + 2 * scale
            actual = ssge_score(samples, points, width=1.0, ratio=0.95, around_gaussian=around)
            each.append((actual + (points - mean) / scale.square()).square().mean())
        errors.append(float(torch.stack(each).mean()))
    assert errors[1] < errors[0] / 3


def test_around_a_gaussian_it_still_sees_more(rng: Generator) -> None:
    """Two modes, as above: between them the Gaussian's score leads inwards, and the estimate outwards."""
    centres = torch.where(torch.rand(300, 1, generator=rng) < 0.5, -2.0, 2.0)
    samples = centres + 0.7 * torch.randn(300, 1, generator=rng)
    points = torch.tensor([[-3.0], [-1.2], [1.2], [3.0]])
    assert ssge_score(samples, points, width=1.5, ratio=0.98, around_gaussian=True).sign().flatten().tolist() == [
        1,
        -1,
        1,
        -1,
    ]


def test_more_samples_are_better() -> None:
    errors = []
    for count in (20, 500):
        each = []
        for seed in range(5):
            samples, others, (mean, scale) = gaussian(3, count, Generator().manual_seed(seed))
            each.append((ssge_score(samples, others, ratio=0.95) + (others - mean) / scale.square()).square().mean())
        errors.append(float(torch.stack(each).mean()))
    assert errors[1] < 0.7 * errors[0]


def test_the_sums_as_the_equations_write_them(rng: Generator) -> None:
    """Eigenfunctions and coefficients of sm:sec:ssge one by one, the kernel's gradient by automatic differentiation."""
    samples, points = (
        torch.randn(6, 3, generator=rng, dtype=torch.float64),
        torch.randn(4, 3, generator=rng, dtype=torch.float64),
    )
    width, count, used = 1.3, len(samples), 4

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        return torch.exp(-(a - b).square().sum() / (2 * width**2))

    gram = torch.stack([torch.stack([kernel(a, b) for b in samples]) for a in samples])
    eigenvalues, eigenvectors = torch.linalg.eigh(gram + JITTER * torch.eye(count, dtype=torch.float64))
    expected = torch.zeros(4, 3, dtype=torch.float64)
    for j in range(count - used, count):
        u, value = eigenvectors[:, j], eigenvalues[j]
        slope = sum(torch.func.grad(kernel)(samples[n], samples[s]) * u[s] for n in range(count) for s in range(count))
        gamma = -slope / (count**0.5 * value)
        phi = (
            torch.stack([sum(u[s] * kernel(w, samples[s]) for s in range(count)) for w in points]) * count**0.5 / value
        )
        expected += phi.unsqueeze(1) * gamma
    actual = ssge_score(samples, points, width=width, eigenfunctions=used)
    torch.testing.assert_close(actual, expected)


def test_shifts_and_the_order_of_samples_mean_nothing(rng: Generator) -> None:
    samples, points = (
        torch.randn(30, 4, generator=rng, dtype=torch.float64),
        torch.randn(7, 4, generator=rng, dtype=torch.float64),
    )
    actual = ssge_score(samples, points, ratio=0.9)
    torch.testing.assert_close(ssge_score(samples + 100, points + 100, ratio=0.9), actual)
    torch.testing.assert_close(ssge_score(samples[torch.randperm(30, generator=rng)], points, ratio=0.9), actual)
    # the median width scales along
    torch.testing.assert_close(ssge_score(3 * samples, 3 * points, ratio=0.9), actual / 3)


@pytest.mark.parametrize("around", [False, True])
@pytest.mark.parametrize("own", [True, False])
def test_many_weights_in_blocks_are_as_one(
    around: bool, own: bool, rng: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several blocks are worked on in single precision; means a thousand times the spread must not drown it."""
    centre = 100 * torch.randn(50, generator=rng)
    samples = centre + 0.1 * torch.randn(12, 50, generator=rng)
    points = samples if own else centre + 0.1 * torch.randn(4, 50, generator=rng)
    whole = ssge_score(samples, points, ratio=0.95, around_gaussian=around)
    # not known to be the samples themselves
    apart = ssge_score(samples, points.clone(), ratio=0.95, around_gaussian=around)
    monkeypatch.setattr("metareplay.posteriors.matching.ssge_score.BLOCK", 7)
    blocks = ssge_score(samples, points, ratio=0.95, around_gaussian=around)
    onto = torch.ones_like(points)
    assert ssge_score(samples, points, ratio=0.95, around_gaussian=around, onto=onto) is onto
    torch.testing.assert_close(onto - 1, blocks, rtol=1e-3, atol=1e-3 * float(blocks.abs().max()))
    torch.testing.assert_close(apart, whole, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(blocks, whole, rtol=1e-3, atol=1e-3 * float(whole.abs().max()))


NEAR_SINGULAR: dict[str, tuple[Tensor, float | None]] = {
    "all equal": (torch.ones(20, 3), None),
    "one sample": (torch.ones(1, 3), None),
    "twins": (torch.randn(10, 3, generator=Generator().manual_seed(1)).repeat(2, 1), None),
    "a wide kernel": (torch.randn(50, 3, generator=Generator().manual_seed(1)), 1e4),
    "a narrow kernel": (torch.randn(50, 3, generator=Generator().manual_seed(1)), 1e-4),
    "close together": (1e-6 * torch.randn(50, 3, generator=Generator().manual_seed(1)), 1.0),
    "a line": (torch.linspace(-1, 1, 60).unsqueeze(1).expand(-1, 3), None),
}


@pytest.mark.parametrize("name", NEAR_SINGULAR)
def test_near_singular_kernels_give_finite_scores(name: str) -> None:
    samples, width = NEAR_SINGULAR[name]
    actual = ssge_score(samples, samples[:5], width=width)
    assert ssge_score(samples, samples[:5], width=width, around_gaussian=True).isfinite().all()
    assert actual.isfinite().all()
    assert actual.dtype == samples.dtype
    if name in ("all equal", "one sample", "a narrow kernel"):  # nothing is known about the density
        assert actual.abs().max() < 1e-6


def test_samples_that_are_not_finite_are_passed_on(rng: Generator) -> None:
    samples = torch.randn(5, 2, generator=rng)
    samples[3, 1] = float("inf")
    assert ssge_score(samples, torch.zeros(3, 2)).isnan().all()
    assert ssge_score(torch.zeros(3, 2), samples).isnan().all()


def test_the_ratio_fixes_the_number_of_eigenfunctions() -> None:
    eigenvalues = torch.tensor([6.0, 2.5, 1.0, 0.5, 1e-9])  # shares 0.6, 0.85, 0.95, 1
    ratios = {0.1: 1, 0.59: 1, 0.61: 2, 0.84: 2, 0.86: 3, 0.96: 4, 1.0: 4}
    assert {ratio: number_of_eigenfunctions(eigenvalues, None, ratio) for ratio in ratios} == ratios
    assert number_of_eigenfunctions(eigenvalues, None, None) == 4  # the last one is too small to be trusted
    assert number_of_eigenfunctions(eigenvalues, 2, None) == 2
    assert number_of_eigenfunctions(eigenvalues, 2, 0.5) == 2  # a fixed number needs no ratio
    assert number_of_eigenfunctions(eigenvalues, 9, 0.86) == 4


def test_the_median_is_over_pairs_of_different_samples() -> None:
    points = torch.tensor([[0.0], [1.0], [4.0]], dtype=torch.float64)
    assert median_distance(squared_distances(points)) == pytest.approx(3.0)  # of 1, 3 and 4


def linear_generator(matrix: Tensor, offset: Tensor) -> tuple[ImplicitFamily, WeightSpec, Tensor]:
    """w = A z + b is Gaussian: N(b, A A')."""
    family = ImplicitFamily(ImplicitSettings(generator_hidden=(), latent_size=2, support_noise=None))
    return family, WeightSpec.of(nn.Linear(1, 1)), torch.cat([matrix.flatten(), offset]).requires_grad_()


def ssge(prior_samples: int, ssge_samples: int = 200) -> SSGEMatching:
    return SSGEMatching(SSGESettings(prior_samples=prior_samples, ssge_samples=ssge_samples, ssge_ratio=0.99))


def test_the_prior_term_has_the_gradient_of_the_kl(rng: Generator) -> None:
    """KL(N(b, A A') || N(0, v I)) has gradients A / v - A^-T and b / v; the mean estimate is within 15 % of them."""
    matrix, offset, prior = torch.tensor([[1.0, 0.3], [-0.4, 0.7]]), torch.tensor([0.5, -1.0]), GaussianPrior(2.0)
    family, spec, theta = linear_generator(matrix, offset)
    exact = torch.cat([(matrix / prior.variance - torch.linalg.inv(matrix).T).flatten(), offset / prior.variance])
    gradients = []
    for _ in range(20):
        term = ssge(1000).term(family.at(theta, spec), prior, generator=rng)
        gradients.append(torch.autograd.grad(term, theta)[0])
    actual = torch.stack(gradients).mean(0)
    assert (actual - exact).norm() < 0.15 * exact.norm()


@pytest.mark.parametrize("samples", [1, 300])
def test_the_prior_term_is_taken_at_the_samples_of_the_estimate(samples: int) -> None:
    """At least S of them, however few the prior needs; the score is estimated from the first S."""
    family, spec, theta = linear_generator(torch.tensor([[1.0, 0.3], [-0.4, 0.7]]), torch.tensor([0.5, -1.0]))
    posterior, prior = family.at(theta, spec), GaussianPrior(2.0)
    term = ssge(samples).term(posterior, prior, generator=Generator().manual_seed(5))
    weights = posterior.rsample(max(200, samples), generator=Generator().manual_seed(5))
    torch.testing.assert_close(term, -prior.log_prob(weights).mean())
    score = ssge_score(weights[:200], weights, ratio=0.99)
    # E[score dw/dtheta] and the cross-entropy's gradient
    along = (score * weights).sum(-1).mean() - prior.log_prob(weights).mean()
    torch.testing.assert_close(torch.autograd.grad(term, theta)[0], torch.autograd.grad(along, theta)[0])


def test_far_samples_still_push_each_other_apart() -> None:
    """Samples three kernel widths apart in 30 dimensions: a new point hardly meets the kernels, a sample meets its own.

    The share of the score that is found falls to less than 6 % at new points; at the samples it stays above 12 %.
    """
    samples, others = torch.randn(2, 100, 30, generator=Generator().manual_seed(0)) * 3 / 60**0.5
    variance = 9 / 60
    # exact: 1
    own, new = (-float((ssge_score(samples, at, width=1.0, ratio=0.9) * at).mean()) for at in (samples, others))
    assert own > 0.12
    assert new < 0.06
    assert abs(float(samples.square().mean()) - variance) < 0.1 * variance


def test_the_prior_alone_makes_the_posterior_the_prior(rng: Generator) -> None:
    """From a spread of 0.04 to the prior's 2 within 20 %, means to within 0.15 of zero."""
    prior = GaussianPrior(2.0)
    family, spec, theta = linear_generator(0.2 * torch.eye(2), torch.tensor([0.5, -1.0]))
    optimiser = torch.optim.Adam([theta], lr=0.03)
    for _ in range(300):
        optimiser.zero_grad()
        ssge(50, ssge_samples=100).term(family.at(theta, spec), prior, generator=rng).backward()
        optimiser.step()
    matrix, offset = theta.detach()[:4].view(2, 2), theta.detach()[4:]
    assert (matrix @ matrix.T - prior.variance * torch.eye(2)).abs().max() < 0.2 * prior.variance
    assert offset.abs().max() < 0.15

"""SSGE as in the published runs: three draws, the entropy apart, how eigenvalues and distances are counted."""

import pytest
import torch
from torch import Generator, Tensor, nn

from metareplay.errors import ConfigError
from metareplay.learner.config import build_config
from metareplay.learner.recipe_book import default_settings
from metareplay.nets.weights import WeightSpec
from metareplay.posteriors.base import HasUnclipped
from metareplay.posteriors.families.implicit import Implicit, ImplicitFamily, ImplicitSettings
from metareplay.posteriors.matching.ssge import SSGEMatching, SSGESettings
from metareplay.posteriors.matching.ssge_score import (
    median_distance,
    number_of_eigenfunctions,
    squared_distances,
    ssge_score,
)
from metareplay.posteriors.priors.earlier import LastPosterior
from metareplay.posteriors.priors.gaussian import GaussianPrior

PRIOR = GaussianPrior(2.0)


def linear_generator() -> tuple[Implicit, Tensor]:
    """w = A z + b is Gaussian: N(b, A A')."""
    family = ImplicitFamily(ImplicitSettings(generator_hidden=(), latent_size=2, support_noise=None))
    theta = torch.tensor([1.0, 0.3, -0.4, 0.7, 0.5, -1.0], requires_grad=True)
    return family.at(theta, WeightSpec.of(nn.Linear(1, 1))), theta


def matching(prior_samples: int, train_samples: int, ssge_samples: int = 200, **given: bool) -> SSGEMatching:
    settings = SSGESettings(
        prior_samples=prior_samples, ssge_samples=ssge_samples, ssge_ratio=0.99, ssge_apart=True, **given
    )
    return SSGEMatching(settings, train_samples)


def unclipped(ssge: SSGEMatching, q: Implicit, generator: Generator) -> Tensor:
    term = ssge.unclipped_term(q, PRIOR, generator=generator)
    assert term is not None
    return term


def test_eigenvalues_below_the_ratio_are_counted_as_published() -> None:
    """Shares 0.6, 0.85, 0.95, 1: strictly below the ratio, at least one; 1 means all that can be trusted."""
    eigenvalues = torch.tensor([6.0, 2.5, 1.0, 0.5, 1e-9])
    ratios = {0.1: 1, 0.59: 1, 0.61: 1, 0.84: 1, 0.86: 2, 0.96: 3, 1.0: 4}
    counted = {ratio: number_of_eigenfunctions(eigenvalues, None, ratio, below=True) for ratio in ratios}
    assert counted == ratios
    halves = torch.tensor([1.0, 1.0])
    assert number_of_eigenfunctions(halves, None, 0.5, below=True) == 1
    assert number_of_eigenfunctions(torch.ones(4), None, 0.75, below=True) == 2  # a share of 0.75 is not below 0.75
    assert number_of_eigenfunctions(torch.ones(4), None, 0.75) == 4


def test_the_published_median_counts_zero_distances() -> None:
    """Distances 1, 3 and 4 twice, and three zeros: 0 0 0 1 1 3 3 4 4."""
    squares = squared_distances(torch.tensor([[0.0], [1.0], [4.0]], dtype=torch.float64))
    assert median_distance(squares) == pytest.approx(3.0)
    assert median_distance(squares, zeros=True) == pytest.approx(1.0)
    assert median_distance(torch.zeros(1, 1), zeros=True) == 1.0


@pytest.mark.parametrize("choice", ["below", "zeros"])
def test_both_ways_of_counting_reach_the_score(choice: str, rng: Generator) -> None:
    samples = torch.randn(12, 3, generator=rng)
    plain, counted = (ssge_score(samples, samples, ratio=0.8, **given) for given in ({}, {choice: True}))
    assert not torch.allclose(plain, counted)


def test_the_prior_is_evaluated_at_samples_of_its_own() -> None:
    q, _ = linear_generator()
    term = matching(3, 5).term(q, PRIOR, generator=Generator().manual_seed(5))
    weights = q.rsample(3, generator=Generator().manual_seed(5))
    torch.testing.assert_close(term, -PRIOR.log_prob(weights).mean())


@pytest.mark.parametrize(("train_samples", "drawn"), [(5, 200), (200, 200), (300, 300)])
def test_the_entropy_is_taken_at_the_first_of_the_samples_that_estimate_it(train_samples: int, drawn: int) -> None:
    """K samples, and S - K more for the estimate."""
    q, theta = linear_generator()
    term = unclipped(matching(3, train_samples), q, Generator().manual_seed(5))
    assert float(term.detach()) == 0
    weights = q.rsample(drawn, generator=Generator().manual_seed(5))
    at = weights[:train_samples]
    along = (ssge_score(weights, at, ratio=0.99) * at).sum(-1).mean()  # E[score dw/dtheta]
    torch.testing.assert_close(torch.autograd.grad(term, theta)[0], torch.autograd.grad(along, theta)[0])


def test_both_terms_together_have_the_gradient_of_the_kl(rng: Generator) -> None:
    """KL(N(b, A A') || N(0, v I)) has gradients A / v - A^-T and b / v; the mean estimate is within 15 % of them."""
    q, theta = linear_generator()
    matrix, offset, ssge = theta.detach()[:4].view(2, 2), theta.detach()[4:], matching(500, 500)
    exact = torch.cat([(matrix / PRIOR.variance - torch.linalg.inv(matrix).T).flatten(), offset / PRIOR.variance])
    gradients = []
    for _ in range(20):
        term = ssge.term(q, PRIOR, generator=rng) + unclipped(ssge, q, rng)
        gradients.append(torch.autograd.grad(term, theta)[0])
    assert (torch.stack(gradients).mean(0) - exact).norm() < 0.15 * exact.norm()


@pytest.mark.parametrize("noise", [None, 0.3])
def test_products_stand_for_the_samples(noise: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both terms from inner products alone: without noise the same gradients, with it the same on average."""
    family = ImplicitFamily(ImplicitSettings(generator_hidden=(3,), latent_size=4, support_noise=noise))
    spec = WeightSpec.of(nn.Linear(20, 10))
    theta = torch.randn(family.num_parameters(spec), generator=Generator().manual_seed(1)).requires_grad_()
    q, ssge = family.at(theta, spec), matching(40, 30, 40)
    found = []
    for pays in (False, True):
        monkeypatch.setattr(Implicit, "products_pay", lambda self, n, pays=pays: pays)
        rng, gradients = Generator().manual_seed(2), []
        for _ in range(1 if noise is None else 80):
            terms = (ssge.term(q, PRIOR, generator=rng), unclipped(ssge, q, rng))
            gradients.append(torch.stack([torch.autograd.grad(term, theta)[0] for term in terms]))
        found.append(torch.stack(gradients).mean(0))
    formed, products = found
    tolerance = 1e-4 if noise is None else 0.15
    for ours, theirs in zip(products, formed, strict=True):
        assert (ours - theirs).norm() < tolerance * theirs.norm()


def test_by_default_nothing_is_apart() -> None:
    q, _ = linear_generator()
    plain = SSGEMatching(SSGESettings())
    assert isinstance(plain, HasUnclipped)
    assert plain.unclipped_term(q, PRIOR, generator=Generator().manual_seed(0)) is None


def test_a_prior_that_is_estimated_too_stays_with_the_entropy() -> None:
    q, _ = linear_generator()
    last = LastPosterior(q, PRIOR, torch.zeros(2, dtype=torch.bool))
    assert matching(3, 5).unclipped_term(q, last, generator=Generator().manual_seed(0)) is None
    with pytest.raises(ConfigError, match="the last posterior is estimated by SSGE too"):
        build_config({}, {"method": "pf-ssge", "posterior.ssge_apart": True}, "test")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"posterior.ssge_below": True, "posterior.ssge_ratio": 1.0}, "means all eigenvalues"),
        ({"posterior.ssge_zero_distances": True, "posterior.ssge_width": 1.0}, "the kernel has a fixed width"),
    ],
)
def test_what_has_no_effect_is_refused(given: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build_config({}, {"method": "pr-ssge", **given}, "test")


@pytest.mark.parametrize(
    ("benchmark", "expected"),
    [
        ("modes-2d", {"ssge_width": 1.0, "ssge_ratio": 0.9, "ssge_below": True, "ssge_apart": True}),
        ("regression-1d", {"ssge_width": None, "ssge_zero_distances": True, "ssge_apart": True}),
    ],
)
def test_the_published_way_needs_to_be_asked_for(benchmark: str, expected: dict[str, object]) -> None:
    settings = [
        build_config(default_settings(benchmark, "pr-ssge", "mlp-10-10", published=each)[0], {}, "").get(SSGESettings)
        for each in (False, True)
    ]
    assert {key: getattr(settings[1], key) for key in expected} == expected
    sound = settings[0]
    assert [sound.ssge_below, sound.ssge_zero_distances, sound.ssge_apart] == [False] * 3
    assert sound.ssge_width is None

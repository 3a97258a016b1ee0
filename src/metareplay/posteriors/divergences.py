"""Divergences q||p by dispatch on the two types.

``kl`` has closed forms, ``monte_carlo_kl`` needs densities only; ``wasserstein2`` is the squared 2-Wasserstein
distance.
A new pair registers with ``@kl.register(TypeOfQ, TypeOfP)``.
"""

from collections.abc import Callable
from typing import Any, Literal, TypeVar

from torch import Generator, Tensor

from metareplay.errors import ConfigError
from metareplay.kernels.gaussian_kl import gaussian_kl
from metareplay.posteriors.base import HasLogProb, HasSamples, HasSamplesWithLogProb
from metareplay.posteriors.families.dirac import Dirac
from metareplay.posteriors.families.gaussian import MeanFieldGaussian
from metareplay.posteriors.families.radial import Radial
from metareplay.posteriors.priors.gaussian import GaussianPrior

Rule = TypeVar("Rule", bound=Callable[[Any, Any], Tensor])

Penalty = Literal["mse", "fkl", "rkl", "w2", "fisher"]


class Divergence:
    """A function of two distributions, chosen by their types."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._rules: dict[tuple[type, type], Callable[[Any, Any], Tensor]] = {}

    def register(self, q: type, p: type) -> Callable[[Rule], Rule]:
        """Decorator: this function computes the divergence of a q from a p."""

        def add(rule: Rule) -> Rule:
            self._rules[q, p] = rule
            return rule

        return add

    def supports(self, q: type, p: type) -> bool:
        """Whether a closed form is registered for this pair."""
        return (q, p) in self._rules

    def __call__(self, q: object, p: object) -> Tensor:
        """The divergence, summed over the weights; leading (batch) dimensions are kept."""
        rule = self._rules.get((type(q), type(p)))
        if rule is None:
            known = ", ".join(f"{a.__name__}||{b.__name__}" for a, b in self._rules)
            raise ConfigError(
                f"{self.name} of {type(q).__name__} from {type(p).__name__} has no closed form; known are {known} "
                f"(register another with @{self.name}.register)"
            )
        return rule(q, p)


kl = Divergence("kl")
wasserstein2 = Divergence("wasserstein2")


@kl.register(MeanFieldGaussian, GaussianPrior)
def _kl_to_prior(q: MeanFieldGaussian, p: GaussianPrior) -> Tensor:
    mean, scale = q.mean.new_zeros(()), q.mean.new_tensor(p.variance**0.5)
    return gaussian_kl(q.mean, q.scale, mean, scale)  # prior-matching term of SM eq. elbo; (..., W) -> (...)


@kl.register(MeanFieldGaussian, MeanFieldGaussian)
def _kl_gaussians(q: MeanFieldGaussian, p: MeanFieldGaussian) -> Tensor:
    return gaussian_kl(q.mean, q.scale, p.mean, p.scale)  # KL(q || p) of two diagonal Gaussians; (..., W) -> (...)


@kl.register(Radial, GaussianPrior)
@kl.register(Radial, MeanFieldGaussian)
def _kl_radial(q: Radial, p: GaussianPrior | MeanFieldGaussian) -> Tensor:
    """Up to a constant: the cross-entropy with a Gaussian depends on means and variances only, and the entropies of q
    and of the Gaussian with the same moments differ by a constant (sm:sec:radial estimates the cross-entropy from
    samples: this is its expectation).
    """
    return kl(q.moments(), p)  # (..., W) -> (...)


@wasserstein2.register(MeanFieldGaussian, MeanFieldGaussian)
def _wasserstein2_gaussians(q: MeanFieldGaussian, p: MeanFieldGaussian) -> Tensor:
    squares = (q.mean - p.mean).square() + (q.scale - p.scale).square()
    return squares.sum(-1)  # W2^2 of diagonal Gaussians; (..., W) -> (...)


@wasserstein2.register(Dirac, Dirac)
def _wasserstein2_diracs(q: Dirac, p: Dirac) -> Tensor:
    return (q.weights - p.weights).square().sum(-1)  # (..., W) -> (...)


def monte_carlo_kl(q: object, p: object, samples: int, *, generator: Generator) -> Tensor:
    """1/n sum_i log q(w_i) - log p(w_i) with w_i ~ q: an estimate of KL(q || p) through which gradients reach both."""
    if not (isinstance(q, HasSamples) and isinstance(q, HasLogProb) and isinstance(p, HasLogProb)):
        return kl(q, p)  # raises, naming the pairs that are known
    if isinstance(q, HasSamplesWithLogProb):
        weights, log_q = q.rsample_and_log_prob(samples, generator=generator)  # (n, ..., W), (n, ...)
    else:
        weights = q.rsample(samples, generator=generator)
        log_q = q.log_prob(weights)
    return (log_q - p.log_prob(weights)).mean(0)  # (n, ...) -> (...)


def known_penalties(posterior: type) -> tuple[Penalty, ...]:
    """The penalties defined for two posteriors of a type: by a registered rule, or from samples and densities."""
    sampled = issubclass(posterior, HasSamples) and issubclass(posterior, HasLogProb)
    penalties: list[Penalty] = ["mse"]
    penalties += ["fkl", "rkl"] if kl.supports(posterior, posterior) or sampled else []
    penalties += ["w2"] if wasserstein2.supports(posterior, posterior) else []
    return (*penalties, "fisher")


def replay_divergence(kind: Penalty, old: object, new: object, samples: int, *, generator: Generator) -> Tensor:
    """D(q* || q) of eq. hnet:reg:analytic:divergence: fkl, rkl or w2, in closed form if known, else Monte Carlo."""
    if kind == "w2":
        return wasserstein2(old, new)
    q, p = (old, new) if kind == "fkl" else (new, old)  # forward: KL(q* || q), reverse: KL(q || q*)
    return kl(q, p) if kl.supports(type(q), type(p)) else monte_carlo_kl(q, p, samples, generator=generator)

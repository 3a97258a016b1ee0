"""The contracts of posterior families (what theta means as a distribution over weights) and of prior matching."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Generator, Tensor, nn

from metareplay.nets.weights import WeightSpec
from metareplay.parts import Registry
from metareplay.settings import Composition, Part


@runtime_checkable
class HasSamples(Protocol):
    """A distribution over weights that can be sampled."""

    def rsample(self, n: int, *, generator: Generator) -> Tensor:
        """Draw n weight samples (n, W) through which gradients reach the parameters, if there are any."""
        ...


@runtime_checkable
class Posterior(HasSamples, Protocol):
    """A distribution over a network's flat weight vector; it can always be sampled."""


@runtime_checkable
class HasLogProb(Protocol):
    """A distribution whose density is known."""

    def log_prob(self, weights: Tensor) -> Tensor:
        """Log-density of weight samples: (n, W) -> (n,)."""
        ...


@runtime_checkable
class HasSamplesWithLogProb(Protocol):
    """A distribution that gives samples and their density together, at lower cost than separately."""

    def rsample_and_log_prob(self, n: int, *, generator: Generator) -> tuple[Tensor, Tensor]:
        """Weight samples (n, W), as from ``rsample``, and their log-density (n,)."""
        ...


@runtime_checkable
class HasNegativeEntropy(Protocol):
    """A distribution whose entropy is known, at least up to a constant."""

    def negative_entropy(self) -> Tensor:
        """E_q log q: a scalar, up to a constant that does not depend on the parameters."""
        ...


Prior = HasLogProb | HasSamples
"""A prior has a known density, or can only be sampled; each estimator of the prior-matching term says what it needs."""


class PriorMatching(Protocol):
    """Computes the prior-matching term KL(q || p), and may learn alongside the task; re-created for every task."""

    def learn(self, q: Posterior, p: Prior, *, generator: Generator) -> None:
        """Train the estimator itself, once before the loss of each training step; no gradient may reach q."""
        ...

    def term(self, q: Posterior, p: Prior, *, generator: Generator) -> Tensor:
        """A scalar whose gradient is, or estimates, that of KL(q || p); its value need not be."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """What it learned, for a checkpoint."""
        ...

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Continue with what a checkpoint holds."""
        ...


@runtime_checkable
class HandsOn(Protocol):
    """An estimator of the prior-matching term that may go on from what that of the last task learned."""

    def handed_on(self) -> dict[str, Tensor]:
        """After a task: what the next task's estimator starts with; empty if it starts anew."""
        ...

    def take_over(self, tensors: Mapping[str, Tensor]) -> None:
        """Before a task: start with what the last task's estimator handed on."""
        ...


@runtime_checkable
class HasUnclipped(Protocol):
    """An estimator of the prior-matching term of which a part is not to be clipped with the other gradients."""

    def unclipped_term(self, q: Posterior, p: Prior, *, generator: Generator) -> Tensor | None:
        """A scalar besides ``term`` whose gradient is added after clipping; None: there is none."""
        ...


class StatelessMatching:
    """Base class of estimators that learn nothing and need no state."""

    def learn(self, q: Posterior, p: Prior, *, generator: Generator) -> None:
        return None

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        return None


@runtime_checkable
class HasFisher(Protocol):
    """A family whose Fisher information is known in closed form."""

    def fisher(self, theta: Tensor, spec: WeightSpec) -> Tensor:
        """The diagonal of E_q[(d log q / d theta)(d log q / d theta)'] for each theta: (..., P) -> (..., P)."""
        ...


class PosteriorFamily(Protocol):
    """How theta is interpreted. Families are stateless: theta is stored by a task map."""

    name: str
    weight_sets: int | None
    """The number of distinct weight samples: 1 for a point, where model agreement is undefined; None: unlimited."""

    def num_parameters(self, spec: WeightSpec) -> int:
        """Length of theta for a network."""
        ...

    def initial(self, network: nn.Module, spec: WeightSpec, *, generator: Generator) -> Tensor:
        """The initial theta where no hypernetwork generates it; ``network`` is freshly initialised."""
        ...

    def initial_variances(self, network: nn.Module, spec: WeightSpec) -> Tensor:
        """The initial variances that a Gaussian-aware hypernetwork gives its outputs: (P,)."""
        ...

    def weight_mask(self, spec: WeightSpec) -> Tensor:
        """True for the elements of theta that act as network weights or their means: (P,) bool."""
        ...

    def at(self, theta: Tensor, spec: WeightSpec) -> Posterior:
        """The distribution with these parameters; leading dimensions of theta are kept."""
        ...

    def while_training(self, theta: Tensor, spec: WeightSpec) -> Posterior:
        """What a training step samples from: the distribution itself, except for families built after a task."""
        ...

    def positions_in(self, spec: WeightSpec, larger: WeightSpec) -> Tensor:
        """The position of each element of theta in the theta of the same network with more outputs."""
        ...


@dataclass(frozen=True, kw_only=True)
class FamilyPart(Part):
    """A posterior family that methods can name."""

    build: Callable[[Composition], PosteriorFamily]
    posterior: type
    """The type of the distribution that theta parametrises; divergences dispatch on it."""
    matching: str = "direct"
    """How its prior-matching term is computed, unless a method names another estimator."""
    point: bool = False
    """Whether predictions come from point estimates."""
    point_in_training: bool = False
    """Whether training steps use a point estimate, from which the posterior is built after the task."""
    members: str | None = None
    """Ensembles: the family of the members."""
    correlated: bool = False
    """Whether weights depend on each other under the posterior, so that a run keeps some samples to show how."""


@dataclass(frozen=True)
class MatchingContext:
    """What an estimator of the prior-matching term may need to know about its task."""

    num_weights: int
    learning_rate: float
    clip_value: float | None
    clip_norm: float | None
    generator: Generator
    device: torch.device | None = None


@dataclass(frozen=True, kw_only=True)
class PriorSource(Part):
    """A part that gives every task its prior: a strategy."""

    recursive: bool = False
    """Whether the last posterior is the next prior."""


@dataclass(frozen=True, kw_only=True)
class MatchingPart(Part):
    """A way to compute the prior-matching term."""

    build: Callable[[Composition, MatchingContext], PriorMatching]


FAMILIES: Registry[FamilyPart] = Registry("family")
MATCHINGS: Registry[MatchingPart] = Registry("matching")
register_family = FAMILIES.register
register_matching = MATCHINGS.register

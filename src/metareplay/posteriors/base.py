"""The contract of posterior families: what a flat parameter vector theta means as a distribution over weights."""

from typing import Protocol, runtime_checkable

from torch import Generator, Tensor, nn

from metareplay.nets.weights import WeightSpec


@runtime_checkable
class Posterior(Protocol):
    """A distribution over a network's flat weight vector."""

    def rsample(self, n: int, *, generator: Generator) -> Tensor:
        """Draw n weight samples (n, W) through which gradients reach the parameters."""
        ...


@runtime_checkable
class HasLogProb(Protocol):
    """A distribution whose density is known."""

    def log_prob(self, weights: Tensor) -> Tensor:
        """Log-density of weight samples: (n, W) -> (n,)."""
        ...


@runtime_checkable
class HasNegativeEntropy(Protocol):
    """A distribution whose entropy is known, if only up to a constant."""

    def negative_entropy(self) -> Tensor:
        """E_q log q: a scalar, up to a constant that the parameters do not change."""
        ...


@runtime_checkable
class HasPriorMatching(Protocol):
    """A distribution that has its own way to the prior-matching term."""

    def matching(self, prior: HasLogProb, samples: int, *, generator: Generator) -> Tensor:
        """A scalar whose gradient estimates that of KL(q || prior) from this many samples; its value may mean less."""
        ...


class PosteriorFamily(Protocol):
    """How theta is read. Families are stateless: theta is stored by a task map."""

    name: str
    deterministic: bool
    """True where all samples are equal, so that one suffices and model agreement means nothing."""

    def num_parameters(self, spec: WeightSpec) -> int:
        """Length of theta for a network."""
        ...

    def initial(self, network: nn.Module, spec: WeightSpec, *, generator: Generator) -> Tensor:
        """Where theta starts if no hypernetwork makes it; ``network`` is freshly initialised."""
        ...

    def initial_variances(self, network: nn.Module, spec: WeightSpec) -> Tensor:
        """The variances that a Gaussian-aware hypernetwork gives its outputs at the start: (P,)."""
        ...

    def weight_mask(self, spec: WeightSpec) -> Tensor:
        """True for the elements of theta that act as network weights or their means: (P,) bool."""
        ...

    def at(self, theta: Tensor, spec: WeightSpec) -> Posterior:
        """The distribution with these parameters; leading dimensions of theta are kept."""
        ...

    def while_training(self, theta: Tensor, spec: WeightSpec) -> Posterior:
        """What a training step samples from; the distribution itself for all families but those built after a task."""
        ...

    def positions_in(self, spec: WeightSpec, larger: WeightSpec) -> Tensor:
        """Where each element of theta stands in the theta of the same network with more outputs."""
        ...

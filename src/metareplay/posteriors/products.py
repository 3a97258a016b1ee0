"""Inner products of a generator's weight samples from small matrices, without forming the samples.

The last layer A (R, K) of a weight generator is linear, so chunk l of sample i is A v_il, where v_il (K,) holds the
inputs of that layer and a one for its bias. With the samples m_i as rows of M,

    M M' = sum_l V_l (A'A) V_l',

K^2 multiplications per row of A, where the samples themselves take n L K. SSGE and a Gaussian prior need only these
products.

Full-support noise, x = m + sigma e (sm:sec:kl:support), does not need one random number per weight either. With
M = U S Q' (singular values S, orthonormal columns Q), e splits into z = Q'e, a standard normal number for each of r
directions, and a part orthogonal to all samples, of which only the inner products matter: a Wishart matrix with W - r
degrees of freedom. Anything linear in the noise has its mean, given the inner products, along Q: e -> M' U S^-1 z.
"""

from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Generator, Tensor

from metareplay.seeding import normal

FEW_WEIGHTS = 16384
"""Samples of at most this many weights are formed anyway: that is as fast, and exact."""
SMALLEST_DIRECTION = 1e-10
"""Directions with eigenvalues below this fraction of the largest are rounding errors."""


@final
@dataclass(frozen=True)
class FactoredSamples:
    """Samples (n, W) as a product: chunk l of sample i is A v_il, with only the first rows in the last chunk."""

    inputs: Tensor
    """v: (n, L, K)."""
    layers: tuple[Tensor, Tensor]
    """A'A of the rows that all chunks use, and of the remaining rows (K, K); gradients reach the left A."""

    @classmethod
    def of(cls, inputs: Tensor, layer: Tensor, num_weights: int) -> "FactoredSamples":
        """From v (n, L, K) and A (R, K)."""
        used = num_weights - (inputs.shape[1] - 1) * len(layer)  # of the last chunk
        first, second = ((part.T @ part.detach()).double() for part in layer.split([used, len(layer) - used]))
        return cls(inputs, (first, second))

    def products(self) -> Tensor:
        """Inner products (n, n) in double precision; gradients reach the left samples, the right ones are constants."""
        return self._products(self.inputs, self.inputs.detach())

    def distances(self) -> Tensor:
        """Squared distances (n, n) without gradients; the mean is subtracted first to avoid cancellation."""
        with torch.no_grad():
            centred = self.inputs - self.inputs.mean(0)
            return distances_from(self._products(centred, centred))

    def _products(self, left: Tensor, right: Tensor) -> Tensor:
        v, w = left.double(), right.double()
        products = (v @ self.layers[0]).flatten(1) @ w.flatten(1).T  # sum_l V_l (A'A) V_l'; (n, n)
        return products + (v[:, :-1] @ self.layers[1]).flatten(1) @ w[:, :-1].flatten(1).T


def distances_from(products: Tensor) -> Tensor:
    """|a_i - a_j|^2 from inner products: (n, n) -> (n, n)."""
    squares = products.diagonal()
    return squares.unsqueeze(1) + squares - 2 * products


class NoisyProducts(NamedTuple):
    """What noise adds to the inner products of samples."""

    added: Tensor
    """sigma (E M' + M E') + sigma^2 E E': (n, n)."""
    along: Tensor
    """The mean of E given all inner products is this matrix (n, n) times M."""

    @classmethod
    def drawn(cls, products: Tensor, scale: float, num_weights: int, *, generator: Generator) -> "NoisyProducts":
        """For samples with inner products M M' (n, n) of many weights, and noise of standard deviation ``scale``."""
        squares, u = torch.linalg.eigh(products)  # M M' = U S^2 U'
        kept = squares > SMALLEST_DIRECTION * squares[-1].clamp_min(torch.finfo(squares.dtype).tiny)
        squares, u = squares[kept], u[:, kept]  # (r,), (n, r)
        size, roots = len(products), squares.sqrt()
        z = normal(size, len(roots), generator=generator, like=products)  # E Q; (n, r)
        crossed = (z * roots) @ u.T  # E M' = Z S U'; (n, n)
        orthogonal = _wishart_factor(size, num_weights - len(roots), generator=generator, like=products)
        added = scale * (crossed + crossed.T) + scale**2 * (z @ z.T + orthogonal @ orthogonal.T)  # (n, n)
        return cls(added, (z / roots) @ u.T)


def _wishart_factor(size: int, degrees: int, *, generator: Generator, like: Tensor) -> Tensor:
    """T (n, n) such that T T' is distributed as E E', with E (n, degrees) standard normal: Bartlett's decomposition.

    Its diagonal holds square roots of chi-squared variables. For many degrees of freedom k these are normal with mean
    (k - 1/2)^(1/2) and variance 1/2 (Fisher).
    """
    numbers = normal(size, size, generator=generator, like=like)
    degree = degrees - torch.arange(size, dtype=like.dtype, device=like.device)
    return numbers.tril(-1) + torch.diag((degree - 0.5).sqrt() + 0.5**0.5 * numbers.diagonal())

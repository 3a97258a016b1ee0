"""Weight samples of a generator that are never formed: only their inner products, from small matrices.

The last layer A (R, K) of a weight generator is linear, so chunk l of sample i is A v_il, where v_il (K,) are the inputs of that layer
and a one for its bias. With the samples m_i as rows of M,

    M M' = sum_l V_l (A'A) V_l',

K^2 multiplications for each row of A, where the samples themselves take n L K. SSGE and a Gaussian prior need no more than these products.

Noise of full support, x = m + sigma e (sm:sec:kl:support), needs no number for each weight either. With M = U S Q' (singular values S,
orthonormal columns Q), e falls apart into z = Q'e, a normal number for each of r directions, and a part at right angles to all samples, of
which only the inner products matter: a Wishart matrix with W - r degrees of freedom. Whatever is linear in the noise has its mean, given
the inner products, along Q: e -> M' U S^-1 z.
"""

from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Generator, Tensor

from metareplay.seeding import normal

FEW_WEIGHTS = 16384
"""Samples of so few weights are formed all the same: that is as fast, and exact."""
SMALLEST_DIRECTION = 1e-10
"""Directions whose share of the largest eigenvalue is below this are rounding errors."""


@final
@dataclass(frozen=True)
class FactoredSamples:
    """Samples (n, W) as a product: chunk l of sample i is A v_il, of which the last chunk has only the first rows."""

    inputs: Tensor
    """v: (n, L, K)."""
    layers: tuple[Tensor, Tensor]
    """A'A of the rows that all chunks use, and of the others (K, K); gradients reach the left A."""

    @classmethod
    def of(cls, inputs: Tensor, layer: Tensor, num_weights: int) -> "FactoredSamples":
        """From v (n, L, K) and A (R, K)."""
        used = num_weights - (inputs.shape[1] - 1) * len(layer)  # of the last chunk
        first, second = ((part.T @ part.detach()).double() for part in layer.split([used, len(layer) - used]))
        return cls(inputs, (first, second))

    def products(self) -> Tensor:
        """Inner products: (n, n), in double precision; gradients reach the samples on the left, as if those on the right were given."""
        return self._products(self.inputs, self.inputs.detach())

    def distances(self) -> Tensor:
        """Squared distances (n, n) without gradients; of what is left when the mean is subtracted, so that it does not drown them."""
        with torch.no_grad():
            centred = self.inputs - self.inputs.mean(0)
            return distances_from(self._products(centred, centred))

    def _products(self, left: Tensor, right: Tensor) -> Tensor:
        v, w = left.double(), right.double()
        found = (v @ self.layers[0]).flatten(1) @ w.flatten(1).T  # sum_l V_l (A'A) V_l'; (n, n)
        return found + (v[:, :-1] @ self.layers[1]).flatten(1) @ w[:, :-1].flatten(1).T


def distances_from(products: Tensor) -> Tensor:
    """|a_i - a_j|^2 from inner products: (n, n) -> (n, n)."""
    squares = products.diagonal()
    return squares.unsqueeze(1) + squares - 2 * products


class NoisyProducts(NamedTuple):
    """What noise adds to the inner products of samples."""

    added: Tensor
    """sigma (E M' + M E') + sigma^2 E E': (n, n)."""
    along: Tensor
    """The mean of E, given all inner products, is this matrix (n, n) times M."""

    @classmethod
    def drawn(cls, products: Tensor, scale: float, num_weights: int, *, generator: Generator) -> "NoisyProducts":
        """For samples with these inner products M M' (n, n), noise of this standard deviation, and many weights."""
        squares, u = torch.linalg.eigh(products)  # M M' = U S^2 U'
        kept = squares > SMALLEST_DIRECTION * squares[-1].clamp_min(torch.finfo(squares.dtype).tiny)
        squares, u = squares[kept], u[:, kept]  # (r,), (n, r)
        size, roots = len(products), squares.sqrt()
        z = normal(size, len(roots), generator=generator, like=products)  # E Q; (n, r)
        crossed = (z * roots) @ u.T  # E M' = Z S U'; (n, n)
        upright = _wishart_factor(size, num_weights - len(roots), generator=generator, like=products)
        added = scale * (crossed + crossed.T) + scale**2 * (z @ z.T + upright @ upright.T)  # (n, n)
        return cls(added, (z / roots) @ u.T)


def _wishart_factor(size: int, degrees: int, *, generator: Generator, like: Tensor) -> Tensor:
    """T (n, n) such that T T' has the law of E E', E (n, degrees) normal: Bartlett's decomposition.

    Roots of chi-squared numbers stand on its diagonal. With many degrees of freedom k they are normal numbers with mean (k - 1/2)^(1/2) and
    variance 1/2 (Fisher).
    """
    numbers = normal(size, size, generator=generator, like=like)
    degree = degrees - torch.arange(size, dtype=like.dtype, device=like.device)
    return numbers.tril(-1) + torch.diag((degree - 0.5).sqrt() + 0.5**0.5 * numbers.diagonal())

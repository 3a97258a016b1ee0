"""Several processes that learn one run together: each sees a part of every batch, and all take the same steps."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from metareplay.batches.base import Batch
from metareplay.errors import ConfigError
from metareplay.model import ContinualModel
from metareplay.strategies.base import LossTerms


class Together(Protocol):
    """The processes of a run."""

    rank: int
    count: int

    def mean(self, tensor: Tensor) -> Tensor:
        """The mean over all processes, the same bits in each."""
        ...


def own_part(batches: Sequence[Batch], together: Together) -> list[Batch]:
    """The rows of each batch that are this process's, weighted so that the mean over processes is that of the batch.

    A batch with fewer rows than processes is seen by all.
    """
    parts = []
    for batch in batches:
        rows = len(batch.x)
        own = slice(together.rank, None, together.count) if rows >= together.count else slice(None)
        x, y = batch.x[own], batch.y[own]  # (B, ...) -> (b, ...)
        share = len(x) * together.count / rows if rows >= together.count else 1.0
        parts.append(Batch(x, y, batch.weight * share))
    return parts


def averaged(
    parameters: Sequence[nn.Parameter], terms: LossTerms, nll: Tensor, together: Together
) -> tuple[LossTerms, Tensor]:
    """Replace gradients by their mean over processes; returns the mean loss terms and NLL. One exchange for all."""
    trained = [parameter for parameter in parameters if parameter.grad is not None]
    gradients = [parameter.grad for parameter in trained if parameter.grad is not None]
    flat = torch.cat([*(gradient.flatten() for gradient in gradients), torch.stack([*terms, nll])])  # (P + 4,)
    *means, numbers = together.mean(flat).split([*(gradient.numel() for gradient in gradients), len(terms) + 1])
    for gradient, mean in zip(gradients, means, strict=True):
        gradient.copy_(mean.view_as(gradient))
    *values, own = numbers.unbind()
    return LossTerms(*values), own


def refuse_whole_batches(model: ContinualModel, *, local: bool) -> None:
    """Refuse what looks at a batch as a whole, and would see only a part of it."""
    refuse_parts_of_batches(model.network, local=local)


def refuse_parts_of_batches(network: nn.Module, *, local: bool) -> None:
    """The same, by the network alone, before there is a model."""
    if local:
        raise ConfigError(
            "--devices: local reparametrisation draws noise for whole batches; set "
            "posterior.local_reparametrisation=false"
        )
    whole = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)
    if any(isinstance(module, whole) for module in network.modules()):
        raise ConfigError("--devices: batch normalisation and dropout see whole batches; choose a network without them")

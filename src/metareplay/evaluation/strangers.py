"""Strangers: unknown inputs, which belong to no task, made from inputs that do, to test whether they are recognised."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Generator, Tensor

Make = Callable[[Tensor, Generator], Tensor]
"""From inputs of all tasks (N, ...) to as many strangers."""


def noise(x: Tensor, generator: Generator) -> Tensor:
    """Uniform in the range of all inputs."""
    low, high = float(x.min()), float(x.max())
    return low + (high - low) * torch.rand(x.shape, generator=generator, dtype=x.dtype)


def permuted(x: Tensor, generator: Generator) -> Tensor:
    """The same inputs with their pixels in another order, the same for all."""
    flat = x.flatten(1)
    order = torch.randperm(flat.shape[1], generator=generator)
    return flat[:, order].reshape(x.shape)  # (N, F) -> (N, ...)


def inverted(x: Tensor, generator: Generator) -> Tensor:
    """Brightness inverted."""
    return float(x.max()) + float(x.min()) - x


def rotated(x: Tensor, generator: Generator) -> Tensor:
    """Rotated by a quarter turn."""
    return torch.rot90(x, 1, (-2, -1))


def mixed_rows(x: Tensor, generator: Generator, widths: Sequence[int] | None = None) -> Tensor:
    """Every column drawn from another row: plausible values that do not go together.

    ``widths`` says how many inputs each column of a table became, one by default: they stay together.
    """
    parts = x.flatten(1).split(list(widths) if widths else 1, dim=1)  # (N, width) each
    mixed = [part[torch.randperm(len(x), generator=generator)] for part in parts]
    return torch.cat(mixed, dim=1).reshape(x.shape)  # (N, F) -> (N, ...)


def far(x: Tensor, generator: Generator) -> Tensor:
    """Five times as far from the mean as they are."""
    mean = x.mean(0)
    return mean + 5 * (x - mean)


IMAGES: Mapping[str, Make] = {"noise": noise, "permuted": permuted, "inverted": inverted, "rotated": rotated}
ROWS: Mapping[str, Make] = {"noise": noise, "mixed rows": mixed_rows, "far": far}
AMBIGUOUS = {
    "mixed rows": "rows whose columns come from different rows",
    "rotated": "rotated images",
}
"""Kinds that may be ordinary inputs: where columns are independent of each other, or no side of an image is up."""


def strangers(x: Tensor, generator: Generator, *, widths: Sequence[int] | None = None) -> dict[str, Tensor]:
    """Strangers of several kinds, by name: for images with a channel, a height and a width, or for rows of a table.

    ``widths``: the inputs that each column of a table became, if that is known.
    """
    images = x.dim() == 4
    makers = dict(IMAGES if images else ROWS)
    if images and x.shape[-1] != x.shape[-2]:
        del makers["rotated"]
    if not images:
        known = widths if widths is not None and sum(widths) == x[0].numel() else None
        makers["mixed rows"] = lambda values, source: mixed_rows(values, source, known)
        if (x[0].numel() if known is None else len(known)) < 2:
            del makers["mixed rows"]  # a single column has nothing to mix
    return {name: make(x, generator) for name, make in makers.items()}


def auroc(known: Tensor, strange: Tensor) -> float:
    """The probability that a stranger's score is above that of a known input; ties count half: (N,), (M,) -> ()."""
    order = known.sort().values
    below = torch.searchsorted(order, strange, right=False).double()
    up_to = torch.searchsorted(order, strange, right=True).double()
    return float(((below + up_to) / 2).mean() / max(len(known), 1))

"""Gradients that are added after clipping: those of a prior-matching term's part that is not to be clipped."""

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from metareplay.training.together import Together


@final
class Unclipped:
    """Sums up such gradients during a step."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self.gradients: list[Tensor | None] = [None] * len(self.parameters)

    def clear(self) -> None:
        """Start a new step."""
        self.gradients = [None] * len(self.parameters)

    def add(self, term: Tensor | None) -> None:
        """The gradient of a term, whose graph is kept for the rest of the loss; None: there is no such term."""
        if term is None:
            return
        found = torch.autograd.grad(term, self.parameters, retain_graph=True, allow_unused=True)
        self.gradients = [_total(old, new) for old, new in zip(self.gradients, found, strict=True)]

    def average(self, together: Together) -> None:
        """Replace gradients by their mean over processes."""
        self.gradients = [None if gradient is None else together.mean(gradient) for gradient in self.gradients]

    def release(self) -> None:
        """Add them to the clipped gradients."""
        for parameter, gradient in zip(self.parameters, self.gradients, strict=True):
            parameter.grad = _total(parameter.grad, gradient)


def _total(old: Tensor | None, new: Tensor | None) -> Tensor | None:
    if old is None or new is None:
        return new if old is None else old
    return old + new

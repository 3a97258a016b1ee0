"""Gradients that are added after clipping: their sum over jobs, their mean over processes."""

import torch
from torch import Tensor, nn

from metareplay.training.unclipped import Unclipped


class Process:
    """One of two; the other sends zeros."""

    rank, count = 0, 2

    def mean(self, tensor: Tensor) -> Tensor:
        return tensor / 2


def parameters() -> list[nn.Parameter]:
    return [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))]


def test_terms_are_summed_and_added_to_what_is_there() -> None:
    given = parameters()
    given[0].grad = torch.full((2,), 10.0)
    unclipped = Unclipped(given)
    graph = given[0] * 2  # both terms need it
    unclipped.add(graph.sum())
    unclipped.add(graph.sum() + given[1].sum())
    unclipped.add(None)
    unclipped.release()
    assert [parameter.grad.tolist() for parameter in given if parameter.grad is not None] == [[14.0] * 2, [1.0] * 3]


def test_without_a_term_nothing_changes() -> None:
    given = parameters()
    unclipped = Unclipped(given)
    unclipped.add(given[0].sum())
    unclipped.clear()
    unclipped.add(None)
    unclipped.release()
    assert [parameter.grad for parameter in given] == [None, None]


def test_processes_take_the_mean() -> None:
    given = parameters()
    unclipped = Unclipped(given)
    unclipped.add(given[0].sum())
    unclipped.average(Process())
    unclipped.release()
    assert given[0].grad is not None
    assert given[0].grad.tolist() == [0.5, 0.5]
    assert given[1].grad is None

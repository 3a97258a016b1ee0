"""Processes that learn together: parts of batches, and means that are those of the whole."""

import pytest
import torch
from torch import Tensor, nn

from metareplay.batches.base import Batch
from metareplay.errors import ConfigError
from metareplay.model import ContinualModel
from metareplay.strategies.base import LossTerms
from metareplay.training.together import averaged, own_part, refuse_whole_batches


class Process:
    """One of several; what the others send is known."""

    def __init__(self, rank: int, count: int, others: Tensor | None = None) -> None:
        self.rank, self.count, self.others = rank, count, others

    def mean(self, tensor: Tensor) -> Tensor:
        return tensor if self.others is None else (tensor + self.others) / 2


@pytest.mark.parametrize("rows", [1, 2, 5, 6, 7])
@pytest.mark.parametrize("count", [2, 3])
def test_the_mean_over_processes_is_that_of_the_batch(rows: int, count: int, rng: torch.Generator) -> None:
    batch = Batch(torch.randn(rows, 4, generator=rng), torch.arange(rows), 0.5)
    parts = [own_part([batch], Process(rank, count))[0] for rank in range(count)]
    mean = torch.stack([part.weight * part.x.mean(0) for part in parts]).mean(0)  # (N, 4) -> (4,)
    torch.testing.assert_close(mean, 0.5 * batch.x.mean(0))
    if rows >= count:
        assert sorted(int(y) for part in parts for y in part.y) == list(range(rows))


def test_gradients_terms_and_loss_are_exchanged_together() -> None:
    parameters = [nn.Parameter(torch.ones(2, 3)), nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(1))]
    parameters[0].grad, parameters[2].grad = torch.full((2, 3), 2.0), torch.full((1,), 4.0)  # the second has none
    terms = LossTerms(*torch.tensor([1.0, 2.0, 3.0]))
    received, nll = averaged(parameters, terms, torch.tensor(5.0), Process(0, 2, torch.zeros(11)))
    assert parameters[1].grad is None
    assert torch.equal(parameters[0].grad, torch.full((2, 3), 1.0))
    assert torch.equal(parameters[2].grad, torch.full((1,), 2.0))
    assert ([float(term) for term in received], float(nll)) == ([0.5, 1.0, 1.5], 2.5)


class Having:
    """A model with this network."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network


def test_what_sees_whole_batches_is_refused() -> None:
    refuse_whole_batches(_model(nn.Linear(2, 2)), local=False)
    with pytest.raises(ConfigError, match="local_reparametrisation=false"):
        refuse_whole_batches(_model(nn.Linear(2, 2)), local=True)
    for layer in (nn.BatchNorm1d(2), nn.Dropout(0.1)):
        with pytest.raises(ConfigError, match="without them"):
            refuse_whole_batches(_model(nn.Sequential(nn.Linear(2, 2), layer)), local=False)


def _model(network: nn.Module) -> ContinualModel:
    return Having(network)  # type: ignore[return-value]

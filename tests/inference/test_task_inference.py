"""The task with the lowest score, input by input and batch by batch."""

from itertools import pairwise

import pytest
import torch
from torch import Generator

from metareplay.inference.task_inference import infer_tasks, infer_tasks_batch_wise


def test_the_lowest_score_wins() -> None:
    scores = torch.tensor([[0.3, 0.1, 0.5], [0.2, 0.4, 0.4], [0.9, 0.2, 0.45]])
    assert infer_tasks(scores).tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("total", "size", "bounds"),
    [
        (6, 3, [0, 3, 6]),
        (7, 3, [0, 3, 7]),  # a rest of one joins the batch before it
        (8, 3, [0, 3, 6, 8]),  # a rest of two of three stands alone
        (10, 4, [0, 4, 8, 10]),  # half a batch stands alone
        (9, 4, [0, 4, 9]),
        (249, 100, [0, 100, 249]),
        (250, 100, [0, 100, 200, 250]),
        (2, 5, [0, 2]),
        (4, 5, [0, 4]),
        (5, 1, [0, 1, 2, 3, 4, 5]),
        (1, 100, [0, 1]),
    ],
)
def test_one_task_per_batch(total: int, size: int, bounds: list[int], rng: Generator) -> None:
    # many tasks: neighbouring batches rarely agree by chance
    scores = torch.rand(40, total, generator=rng, dtype=torch.float64)
    chosen = infer_tasks_batch_wise(scores, size)
    assert chosen.shape == (total,)
    expected = []
    for start, stop in pairwise(bounds):
        expected += [int(scores[:, start:stop].mean(1).argmin())] * (stop - start)
    assert chosen.tolist() == expected


def test_batches_of_one_are_single_inputs(rng: Generator) -> None:
    scores = torch.rand(5, 30, generator=rng)
    assert torch.equal(infer_tasks_batch_wise(scores, 1), infer_tasks(scores))


def test_a_batch_gathers_weak_evidence(rng: Generator) -> None:
    scores = torch.rand(3, 300, generator=rng)
    scores[1] -= 0.2
    single = (infer_tasks(scores) == 1).double().mean()
    assert 0.4 < float(single) < 0.9
    assert (infer_tasks_batch_wise(scores, 100) == 1).all()


def test_the_mean_decides_and_not_the_majority() -> None:
    scores = torch.tensor([[0.1, 0.1, 0.9], [0.2, 0.2, 0.2]])
    assert infer_tasks(scores).tolist() == [0, 0, 1]
    assert infer_tasks_batch_wise(scores, 3).tolist() == [1, 1, 1]

"""The two task maps that store theta directly."""

import torch
from torch import Generator

from metareplay.task_maps.base import Start
from metareplay.task_maps.direct import PerTaskParameters, SharedParameters


def test_one_theta_for_all_tasks_starts_with_the_first(rng: Generator) -> None:
    shared = SharedParameters(3)
    first = torch.tensor([1.0, 2.0, 3.0])
    shared.add_task(Start(first), generator=rng)
    shared.add_task(Start(torch.zeros(3)), generator=rng)
    assert shared.num_tasks == 2
    assert torch.equal(shared.thetas([1, 0]), first.expand(2, -1))
    assert shared.num_parameters() == 3
    assert shared.per_task_parameters() == 0
    assert shared.trained_parameters(0)[0] is shared.trained_parameters(1)[0]


def test_learning_a_task_changes_the_shared_theta_of_all(rng: Generator) -> None:
    shared = SharedParameters(3)
    for _ in range(2):
        shared.add_task(Start(torch.zeros(3)), generator=rng)
    shared.trained_parameters(1)[0].data += 1
    assert torch.equal(shared.theta(0), torch.ones(3))


def test_separate_thetas_start_and_stay_apart(rng: Generator) -> None:
    separate = PerTaskParameters(3)
    begin = torch.tensor([1.0, 2.0, 3.0])
    separate.add_task(Start(begin), generator=rng)
    separate.add_task(Start(begin), generator=rng)
    separate.trained_parameters(1)[0].data += 1
    assert torch.equal(separate.theta(0), torch.tensor([1.0, 2.0, 3.0]))
    assert torch.equal(separate.thetas([1, 0]), torch.tensor([[2.0, 3.0, 4.0], [1.0, 2.0, 3.0]]))
    assert torch.equal(begin, torch.tensor([1.0, 2.0, 3.0]))
    assert separate.num_parameters() == 6
    assert separate.per_task_parameters() == 3
    separate.theta(1).sum().backward()
    assert separate.trained_parameters(0)[0].grad is None

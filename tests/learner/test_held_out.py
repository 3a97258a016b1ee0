"""Examples of a task that training does not use."""

import torch
from torch import Generator

from metareplay.benchmarks.base import TaskData
from metareplay.learner.held_out import FEWEST, MOST, split


def numbered(rows: int, classes: int = 3) -> TaskData:
    """Inputs that are their row number; the last class is rare."""
    y = torch.arange(rows) % (classes - 1)
    y[::20] = classes - 1
    return TaskData(torch.arange(rows).float().unsqueeze(1), y)


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def test_every_class_gives_its_share_and_order_is_kept() -> None:
    data = numbered(600)
    used, held_out = split(data, 0.1, classes=True, generator=seeded())
    rows = [part.x.squeeze(1).long() for part in (used, held_out)]
    assert torch.equal(torch.cat(rows).sort().values, torch.arange(600))  # each is in one of them
    for part, indices in zip((used, held_out), rows, strict=True):
        assert torch.equal(indices, indices.sort().values)
        assert torch.equal(part.y, data.y[indices])
    assert held_out.y.bincount().tolist() == [int(0.1 * count) for count in data.y.bincount().tolist()]


def test_the_same_generator_holds_out_the_same_examples() -> None:
    one, same, other = (split(numbered(400), 0.2, classes=True, generator=seeded(seed))[1].x for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_small_tasks_keep_everything_and_large_ones_give_no_more_than_needed() -> None:
    for data, share in ((numbered(FEWEST - 1), 0.5), (numbered(400), 0.0)):
        used, held_out = split(data, share, classes=True, generator=seeded())
        assert torch.equal(used.x, data.x)
        assert len(held_out.x) == len(held_out.y) == 0
    assert len(split(numbered(FEWEST), 0.1, classes=True, generator=seeded())[1].x) > 0
    large = split(numbered(50 * MOST), 0.1, classes=True, generator=seeded())[1]
    assert MOST - 3 <= len(large.x) <= MOST


def test_regression_has_no_classes() -> None:
    x = torch.linspace(-1, 1, 300).unsqueeze(1)
    used, held_out = split(TaskData(x, x.sin()), 0.1, classes=False, generator=seeded())
    assert (len(used.x), len(held_out.x)) == (270, 30)
    assert torch.equal(held_out.y, held_out.x.sin())

"""Random crops and flips: what they may do, and that they resume bit for bit."""

import torch

from metareplay.batches.augment import CROP_PADDING, crop_and_flip
from metareplay.batches.task import TaskBatches
from metareplay.benchmarks.base import TaskData


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _plain_crop(x: torch.Tensor, top: int, left: int, flipped: bool) -> torch.Tensor:
    padded = torch.nn.functional.pad(x, (CROP_PADDING,) * 4)
    part = padded[:, top : top + x.shape[1], left : left + x.shape[2]]
    return part.flip(2) if flipped else part


def test_every_image_is_a_crop_of_itself_and_all_crops_occur() -> None:
    image = torch.rand(3, 6, 5, generator=_generator())
    actual = crop_and_flip(image.expand(4000, -1, -1, -1), generator=_generator(1))
    side = range(2 * CROP_PADDING + 1)
    possible = torch.stack(
        [_plain_crop(image, top, left, flipped) for top in side for left in side for flipped in (False, True)]
    )
    same = (actual[:, None] == possible[None]).flatten(2).all(2)  # (4000, 162)
    assert same.any(1).all()
    counts = same.sum(0)
    assert (counts > 0).all()
    assert counts.max() < 80  # about 25 each
    assert abs(int(counts.view(-1, 2)[:, 0].sum()) - 2000) < 200  # half of them flipped


def test_channels_move_together_and_images_do_not() -> None:
    x = torch.rand(64, 1, 8, 8, generator=_generator()).expand(-1, 3, -1, -1)
    actual = crop_and_flip(x, generator=_generator(1))
    assert torch.equal(actual[:, 0], actual[:, 2])
    same = crop_and_flip(x[:1].expand(64, -1, -1, -1), generator=_generator(1))
    assert not torch.equal(same[0], same[1])


def test_the_input_is_left_alone() -> None:
    x = torch.rand(8, 3, 6, 6, generator=_generator())
    before = x.clone()
    crop_and_flip(x, generator=_generator(1))
    assert torch.equal(x, before)


def test_batches_are_augmented_and_continue_where_a_checkpoint_stopped() -> None:
    data = TaskData(torch.rand(20, 3, 6, 6, generator=_generator()), torch.arange(20))
    batches = TaskBatches(data, 8, _generator(2), "crop-flip")
    batches.next()
    stored = {name: tensor.clone() for name, tensor in batches.tensors().items()}
    rest = [batches.next() for _ in range(5)]
    again = TaskBatches(data, 8, _generator(9), "crop-flip")
    again.restore(stored)
    for expected, actual in zip(rest, (again.next() for _ in range(5)), strict=True):
        assert torch.equal(expected.x, actual.x)
        assert torch.equal(expected.y, actual.y)
        assert not torch.equal(actual.x, data.x[actual.y])  # varied


def test_without_a_name_nothing_is_augmented() -> None:
    data = TaskData(torch.rand(20, 3, 6, 6, generator=_generator()), torch.arange(20))
    batch = TaskBatches(data, 8, _generator(2)).next()
    assert torch.equal(batch.x, data.x[batch.y])

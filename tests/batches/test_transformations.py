"""Transformed copies: what each transformation may do, and which are used for which inputs."""

from itertools import permutations

import pytest
import torch
from torch import Generator, Tensor

from metareplay.batches import transformations as t
from metareplay.batches.transformations import Transformation, transformations_for

IMAGE, TABLE = (2, 6, 6), (4,)
EVERY = [
    *((transform, IMAGE) for transform in (t.rotated, t.flipped, t.upside_down, t.shuffled_quadrants)),
    *((transform, IMAGE) for transform in (t.cut_and_pasted, t.blended)),
    *((transform, TABLE) for transform in (t.shuffled_columns, t.beyond_the_hull, t.scaled_noise)),
]


def many(image: Tensor, count: int = 500) -> Tensor:
    """A batch with the same image in every row."""
    return image.expand(count, *image.shape)


def is_one_of(copies: Tensor, allowed: list[Tensor]) -> Tensor:
    """Which of the allowed images each copy is: (M, A) bool."""
    return torch.stack([(copies == image).flatten(1).all(1) for image in allowed], dim=1)


@pytest.mark.parametrize(("transform", "shape"), EVERY)
def test_copies_are_made_of_the_named_rows_only(
    transform: Transformation, shape: tuple[int, ...], rng: Generator
) -> None:
    x = torch.rand(8, *shape, generator=rng)
    before, rows = x.clone(), torch.tensor([3, 3, 0, 5])
    copies = transform(x, rows, generator=Generator().manual_seed(1))
    assert copies.shape == (4, *shape)
    assert copies.isfinite().all()
    assert not (copies == x[rows]).flatten(1).all(1).any()
    assert torch.equal(x, before)
    assert torch.equal(transform(x, rows, generator=Generator().manual_seed(1)), copies)
    assert transform(x, rows[:0], generator=rng).shape == (0, *shape)


def test_rotations_and_flips_are_exactly_those(rng: Generator) -> None:
    image, rows = torch.rand(IMAGE, generator=rng), torch.arange(500)
    quarter_turns = [image.rot90(turn, (1, 2)) for turn in (1, 2, 3)]
    for transform, allowed in ((t.rotated, quarter_turns), (t.flipped, [image.flip(1), image.flip(2)])):
        counts = is_one_of(transform(many(image), rows, generator=rng), allowed).sum(0)
        assert counts.sum() == 500
        assert (counts > 100).all()
    wide = torch.rand(1, 4, 6, generator=rng)
    assert is_one_of(t.rotated(many(wide), rows, generator=rng), [wide.flip(1, 2)]).all()


@pytest.mark.parametrize("side", [6, 7])
def test_quadrants_come_in_every_order_but_the_right_one(side: int, rng: Generator) -> None:
    image, half = torch.rand(1, side, side, generator=rng), side // 2
    places = [(slice(0, half), slice(0, half)), (slice(0, half), slice(side - half, side))]
    places += [(slice(side - half, side), columns) for _, columns in places]
    allowed = []
    for order in list(permutations(range(4)))[1:]:
        shuffled = image.clone()
        for place, source in zip(places, order, strict=True):
            shuffled[0][place] = image[0][places[source]]
        allowed.append(shuffled)
    counts = is_one_of(t.shuffled_quadrants(many(image), torch.arange(500), generator=rng), allowed).sum(0)
    assert counts.sum() == 500
    assert (counts > 0).all()


def test_a_patch_of_another_image_is_pasted(rng: Generator) -> None:
    x = torch.arange(1.0, 9.0).view(8, 1, 1, 1).expand(8, 2, 6, 4)  # each image has a value of its own
    rows = torch.arange(8).repeat(50)
    copies = t.cut_and_pasted(x, rows, generator=rng)
    foreign = copies != x[rows]
    assert (foreign.sum((2, 3)) == 3 * 2).all()  # half of each side, in both channels
    assert torch.equal(foreign.any(3).sum(2), torch.full((400, 2), 3))
    assert torch.equal(foreign.any(2).sum(2), torch.full((400, 2), 2))
    assert (copies.flatten(1).amin(1) != copies.flatten(1).amax(1)).all()
    assert all(len(image.unique()) == 2 for image in copies)  # a single source
    assert foreign.flatten(1).any(0).all()  # anywhere


def test_blends_and_rows_beyond_the_hull_lie_on_the_line_through_two_rows(rng: Generator) -> None:
    x = torch.tensor([0.0, 1.0]).view(2, 1, 1, 1).expand(2, 1, 2, 2)
    shares = t.blended(x, torch.ones(1000, dtype=torch.int64), generator=rng)[:, 0, 0, 0]
    assert 0.3 <= float(shares.min()) < 0.32
    assert 0.68 < float(shares.max()) <= 0.7
    table = torch.tensor([[0.0, 0.0], [1.0, -2.0]])
    away = t.beyond_the_hull(table, torch.ones(1000, dtype=torch.int64), generator=rng)
    torch.testing.assert_close(away[:, 1], -2 * away[:, 0])
    assert 1.5 <= float(away[:, 0].min()) < 1.52
    assert 2.48 < float(away[:, 0].max()) <= 2.5


def test_shuffled_columns_keep_their_values_and_lose_their_dependence(rng: Generator) -> None:
    first = torch.randn(2000, 1, generator=rng)
    x = torch.cat([first, 10 + first], dim=1)
    copies = t.shuffled_columns(x, torch.arange(2000), generator=rng)
    assert torch.isin(copies[:, 0], x[:, 0]).all()
    assert torch.isin(copies[:, 1], x[:, 1]).all()
    assert abs(float(torch.corrcoef(copies.T)[0, 1])) < 0.1


def test_noise_is_wider_than_every_column(rng: Generator) -> None:
    x = torch.randn(2000, 3, generator=rng) * torch.tensor([1.0, 5.0, 0.0]) + torch.tensor([7.0, 0.0, 3.0])
    noise = t.scaled_noise(x, torch.arange(2000), generator=rng)
    torch.testing.assert_close(noise.mean(0), torch.tensor([7.0, 0.0, 3.0]), rtol=0, atol=1.0)
    spread = noise.std(0) / torch.tensor([1.0, 5.0, 0.2])  # a constant column: a tenth of the columns' mean
    assert ((spread > 1.9) & (spread < 2.3)).all()


def test_which_transformations_are_used() -> None:
    """None that makes inputs of the task's own classes."""
    always = (t.shuffled_quadrants, t.cut_and_pasted, t.blended)
    assert transformations_for(IMAGE, rotations=False) == (t.rotated, t.flipped, *always)
    assert transformations_for(IMAGE, rotations=True) == (t.flipped, *always)
    assert transformations_for(IMAGE, rotations=False, augmentation="crop-flip") == (t.rotated, t.upside_down, *always)
    assert transformations_for(IMAGE, rotations=True, augmentation="crop-flip") == always
    for shape in (TABLE, (3, 1, 9), (5, 5)):
        assert transformations_for(shape, rotations=False) == (t.shuffled_columns, t.beyond_the_hull, t.scaled_noise)
    assert transformations_for((1,), rotations=False) == (t.beyond_the_hull, t.scaled_noise)

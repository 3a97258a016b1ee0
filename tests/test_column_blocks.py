"""Column blocks select the same columns as an index, with the same gradients."""

import pytest
import torch
from torch import Generator

from metareplay import column_blocks
from metareplay.column_blocks import ColumnBlocks

INDICES = {
    "all": list(range(9)),
    "none": [],
    "one": [4],
    "the first": [0, 1, 2],
    "the last": [7, 8],
    "apart": [0, 2, 4, 8],
    "reordered": [5, 6, 7, 8, 0, 1, 2, 3, 4],
    "backwards": list(range(8, -1, -1)),
    "a mixture": [3, 4, 0, 8, 5, 6],
}


@pytest.mark.parametrize("most", [0, 1000])
@pytest.mark.parametrize("name", INDICES)
def test_blocks_equal_an_index(name: str, most: int, rng: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_blocks, "MAX_BLOCKS", most)
    index = torch.tensor(INDICES[name], dtype=torch.int64)
    x = torch.randn(2, 3, 9, generator=rng, requires_grad=True)
    actual, expected = ColumnBlocks.of(index, 9).take(x), x[..., index]
    assert torch.equal(actual, expected)
    slopes = torch.randn(actual.shape, generator=rng)
    assert torch.equal(*(torch.autograd.grad(each, x, slopes)[0] for each in (actual, expected)))


@pytest.mark.parametrize("most", [0, 1000])
@pytest.mark.parametrize("name", INDICES)
def test_blocks_are_put_where_an_index_would(
    name: str, most: int, rng: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_blocks, "MAX_BLOCKS", most)
    index = torch.tensor(INDICES[name], dtype=torch.int64)
    actual, values = torch.randn(2, 9, generator=rng), torch.randn(2, len(index), generator=rng)
    expected = actual.clone()
    expected[:, index] = values
    ColumnBlocks.of(index, 9).put(actual, values)
    assert torch.equal(actual, expected)


@pytest.mark.parametrize("name", INDICES)
def test_what_was_taken_can_be_put_back(name: str, rng: Generator) -> None:
    """Whether it was a view or a copy."""
    made = ColumnBlocks.of(torch.tensor(INDICES[name], dtype=torch.int64), 9)
    x = torch.randn(2, 9, generator=rng)
    expected = x.clone()
    expected[:, INDICES[name]] += 1
    made.put(x, made.take(x).add_(1))
    assert torch.equal(x, expected)


def test_one_row_is_put_into_all(rng: Generator) -> None:
    """Also where it begins as the columns do that it is put into."""
    x = torch.randn(2, 9, generator=rng)
    ColumnBlocks.of(torch.arange(3), 9).put(x, x[:1, :3])
    assert torch.equal(x[1, :3], x[0, :3])


def test_long_runs_make_few_blocks() -> None:
    made = ColumnBlocks.of(torch.cat([torch.arange(100, 1000), torch.arange(100)]), 1000)
    assert made.sizes == [100, 900]
    assert made.chosen == [1, 0]
